//! The connection state machine (InfiniBand specification, chapter 12) as one table.
//!
//! [`transition`] says for every state and event where a connection goes; the files that send and receive messages ask
//! it first and act only on its answer. It has no side effects, and a test compares the whole table with `state.snap`.
//! Duplicates are part of the table: a message that was lost on its way is answered again from the state that follows.

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// No exchange yet, or none any more.
    Idle,
    /// Active side: REQ sent, no answer.
    ReqSent,
    /// Active side: the peer asked for more time (MRA) before it answers the REQ.
    MraReqReceived,
    /// Passive side: the application was told and has not answered.
    ReqReceived,
    /// Passive side: REP sent.
    RepSent,
    /// Passive side: the peer asked for more time before it answers the REP.
    MraRepReceived,
    /// Active side: REP received, the application readies its QP.
    RepReceived,
    /// Both sides know.
    Established,
    /// This side disconnects.
    DreqSent,
    /// The peer disconnects, this side has not answered.
    DreqReceived,
    /// Gone; answers late duplicates for a while.
    TimeWait,
}

impl State {
    /// Every state, for tests and tables.
    pub const ALL: [Self; 11] = [
        Self::Idle,
        Self::ReqSent,
        Self::MraReqReceived,
        Self::ReqReceived,
        Self::RepSent,
        Self::MraRepReceived,
        Self::RepReceived,
        Self::Established,
        Self::DreqSent,
        Self::DreqReceived,
        Self::TimeWait,
    ];
}

/// What can happen to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// This side asks for a connection.
    SendReq,
    /// This side accepts.
    SendRep,
    /// This side confirms.
    SendRtu,
    /// This side refuses or gives up.
    SendRej,
    /// This side disconnects.
    SendDreq,
    /// This side agrees to a disconnect.
    SendDrep,
    /// Data arrived before the RTU (`IBV_EVENT_COMM_EST`).
    Notify,
    /// REQ received: new, or the same again.
    Req,
    /// REP received.
    Rep,
    /// RTU received.
    Rtu,
    /// REJ received.
    Rej,
    /// MRA for the REQ received.
    MraReq,
    /// MRA for the REP received.
    MraRep,
    /// DREQ received.
    Dreq,
    /// DREP received.
    Drep,
    /// The last repetition of the outstanding message went unanswered.
    Exhausted,
    /// The time-wait period is over.
    Expired,
}

impl Event {
    /// Every event, for tests and tables.
    pub const ALL: [Self; 17] = [
        Self::SendReq,
        Self::SendRep,
        Self::SendRtu,
        Self::SendRej,
        Self::SendDreq,
        Self::SendDrep,
        Self::Notify,
        Self::Req,
        Self::Rep,
        Self::Rtu,
        Self::Rej,
        Self::MraReq,
        Self::MraRep,
        Self::Dreq,
        Self::Drep,
        Self::Exhausted,
        Self::Expired,
    ];
}

/// The message that answers a duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// "Received, the application is thinking."
    Mra,
    /// The REP once more.
    Rep,
    /// The RTU once more.
    Rtu,
    /// The REJ once more, or a "stale connection" one when there was none.
    Rej,
    /// The DREP once more.
    Drep,
}

/// The table's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// The event is due; this is the next state.
    Go(State),
    /// A duplicate: stay, and send this.
    Answer(Again),
    /// Late or repeated, nothing to do.
    Ignore,
    /// Not allowed in this state: `EINVAL` for a local event, silence for a message.
    Refuse,
}

/// The table.
#[must_use]
pub const fn transition(state: State, event: Event) -> Transition {
    use State as S;
    use Transition::{Answer, Go, Ignore, Refuse};
    match (event, state) {
        (Event::SendReq, S::Idle) => Go(S::ReqSent),
        (Event::SendRep, S::ReqReceived) => Go(S::RepSent),
        (Event::SendRtu, S::RepReceived) => Go(S::Established),
        (Event::SendRej, S::ReqSent | S::MraReqReceived) => Go(S::Idle),
        // The refusal is remembered for a while: if it is lost, the REQ comes again and must not look new.
        (Event::SendRej, S::ReqReceived | S::RepSent | S::MraRepReceived | S::RepReceived) => Go(S::TimeWait),
        // The kernel insists on ESTABLISHED. An application that gives up while the RTU is on its way must not leave
        // its peer connected, so the states around it may disconnect too.
        (Event::SendDreq, S::RepSent | S::MraRepReceived | S::RepReceived | S::Established) => Go(S::DreqSent),
        (Event::SendDrep, S::DreqReceived) => Go(S::TimeWait),
        (Event::Notify, S::RepSent | S::MraRepReceived) => Go(S::Established),
        (Event::Notify, S::Established) => Ignore,

        (Event::Req, S::Idle) => Go(S::ReqReceived),
        (Event::Req, S::ReqReceived) => Answer(Again::Mra),
        (Event::Req, S::RepSent | S::MraRepReceived) => Answer(Again::Rep),
        (Event::Req, S::TimeWait) => Answer(Again::Rej),
        (Event::Req, S::Established | S::DreqSent | S::DreqReceived) => Ignore,
        (Event::Rep, S::ReqSent | S::MraReqReceived) => Go(S::RepReceived),
        (Event::Rep, S::RepReceived) => Answer(Again::Mra),
        (Event::Rep, S::Established) => Answer(Again::Rtu),
        (Event::Rep, S::DreqSent | S::DreqReceived | S::TimeWait) => Ignore,
        (Event::Rtu, S::RepSent | S::MraRepReceived) => Go(S::Established),
        (Event::Rtu, S::Established | S::DreqSent | S::DreqReceived | S::TimeWait) => Ignore,
        (Event::Rej, S::ReqSent | S::MraReqReceived | S::ReqReceived | S::RepSent | S::MraRepReceived) => Go(S::Idle),
        (Event::Rej, S::RepReceived | S::Established | S::DreqSent) => Go(S::TimeWait),
        (Event::Rej, S::DreqReceived | S::TimeWait) => Ignore,
        (Event::MraReq, S::ReqSent | S::MraReqReceived) => Go(S::MraReqReceived),
        (Event::MraRep, S::RepSent | S::MraRepReceived) => Go(S::MraRepReceived),
        (Event::MraReq | Event::MraRep, S::RepReceived | S::Established) => Ignore,
        (Event::Dreq, S::RepSent | S::MraRepReceived | S::RepReceived | S::Established) => Go(S::DreqReceived),
        // Both sides disconnect at once: the application has already agreed.
        (Event::Dreq, S::DreqSent) => Go(S::TimeWait),
        (Event::Dreq, S::DreqReceived) => Ignore,
        (Event::Dreq, S::TimeWait) => Answer(Again::Drep),
        (Event::Drep, S::DreqSent | S::DreqReceived) => Go(S::TimeWait),
        (Event::Drep, S::TimeWait) => Ignore,

        (Event::Exhausted, S::ReqSent | S::MraReqReceived | S::RepSent | S::MraRepReceived) => Go(S::Idle),
        (Event::Exhausted, S::DreqSent) => Go(S::TimeWait),
        (Event::Expired, S::TimeWait) => Go(S::Idle),
        _ => Refuse,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn rendered() -> String {
        let mut text = String::new();
        for state in State::ALL {
            for event in Event::ALL {
                let answer = match transition(state, event) {
                    Transition::Go(next) => format!("-> {next:?}"),
                    Transition::Answer(again) => format!("again {again:?}"),
                    Transition::Ignore => "ignored".into(),
                    Transition::Refuse => "refused".into(),
                };
                writeln!(
                    text,
                    "{:<15} {:<10} {answer}",
                    format!("{state:?}"),
                    format!("{event:?}")
                )
                .unwrap();
            }
        }
        text
    }

    #[test]
    fn the_table_is_the_one_on_file() {
        let actual = rendered();
        if std::env::var_os("ADVERB_WRITE_SNAPSHOTS").is_some() {
            std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/cm/core/state.snap"), &actual).unwrap();
        }
        assert!(
            actual == include_str!("state.snap"),
            "the connection state table changed:\n{actual}"
        );
    }

    #[test]
    fn every_state_can_end() {
        // From anywhere, a refusal, a disconnect or time itself leads to Idle.
        for start in State::ALL {
            let mut reached = vec![start];
            let mut index = 0;
            while index < reached.len() {
                for event in Event::ALL {
                    if let Transition::Go(next) = transition(reached[index], event)
                        && !reached.contains(&next)
                    {
                        reached.push(next);
                    }
                }
                index += 1;
            }
            assert!(reached.contains(&State::Idle), "{start:?} never ends");
        }
    }
}
