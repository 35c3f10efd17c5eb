//! What the device tells the driver outside the CQs.

/// An event for the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An armed CQ has a new completion.
    Completion {
        /// The cookie given at creation.
        cookie: u64,
    },
    /// An asynchronous event.
    Async(AsyncEvent),
}

/// An asynchronous event of a QP or CQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// What happened; the values are those of `enum ibv_event_type`.
    pub kind: AsyncEventKind,
    /// The cookie of the QP or CQ.
    pub cookie: u64,
}

/// Kinds of asynchronous event; the values are those of `enum ibv_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are those of the verbs specification")]
pub enum AsyncEventKind {
    CqErr = 0,
    QpFatal = 1,
    QpReqErr = 2,
    QpAccessErr = 3,
    CommEst = 4,
    SqDrained = 5,
    QpLastWqeReached = 16,
}
