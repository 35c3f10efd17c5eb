//! Go-back-N loss recovery of RoCEv2, for programs whose receiver discards what arrives out of order.
//!
//! A NACK rewinds to the segment the receiver expects; a repeated one does not while its retransmission waits or
//! cannot have been answered yet. An early probe resends the oldest segment alone: a receiver that has everything
//! acknowledges everything, and only an acknowledgement of just this segment shows that the rest must follow. One of
//! more than this segment and less than was sent may be late or tell of a loss farther on: the next segment is probed.

use super::super::SegNo;
use super::super::actions::{Actions, TimerAction};
use super::super::event::Incoming;
use super::super::program::Wake;
use super::super::view::{FlowView, Head};

/// Per-flow state, a part of the program's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct GoBackN {
    /// One past the segment an early probe resent, 0 for none.
    probed: SegNo,
    /// One past the last segment that had been sent when the probing began.
    probed_end: SegNo,
}

impl GoBackN {
    /// Marks and timer for an arrival.
    pub(super) fn incoming(&mut self, view: &FlowView<'_>, event: &Incoming) -> Actions {
        match *event {
            Incoming::Nack { cum } | Incoming::NackSegment { cum, .. } if cum == view.una() && is_news(view) => {
                self.rewind(view, cum)
            }
            Incoming::Rewind { from } => self.rewind(view, from),
            Incoming::Progress => Actions {
                timer: TimerAction::Reset,
                ..Actions::default()
            },
            _ => self.acknowledged(view),
        }
    }

    /// Marks for an early probe or a timeout.
    pub(super) fn expired(&mut self, view: &FlowView<'_>, wake: Wake) -> Actions {
        let mut actions = Actions::default();
        match wake {
            Wake::Visit => {}
            Wake::Probe if view.head() == Head::Waiting => {}
            Wake::Probe => {
                actions.marks.add(view.una()..view.una() + 1);
                self.probed = view.una() + 1;
                self.probed_end = view.sent_end();
            }
            Wake::Timeout => {
                actions.marks.add(view.una()..view.next_new());
                self.probed = 0;
            }
        }
        actions
    }

    /// The cumulative part of every acknowledgement.
    fn acknowledged(&mut self, view: &FlowView<'_>) -> Actions {
        let mut actions = Actions::default();
        if view.una() > view.old_una() {
            actions.timer = TimerAction::Reset;
            if self.probed == view.una() {
                actions.marks.add(view.una()..view.next_new());
                self.probed = 0;
            } else if self.probed != 0 && view.una() < self.probed_end {
                actions.marks.add(view.una()..view.una() + 1);
                self.probed = view.una() + 1;
            } else {
                self.probed = 0;
            }
        }
        actions
    }

    fn rewind(&mut self, view: &FlowView<'_>, from: SegNo) -> Actions {
        self.probed = 0;
        let mut actions = Actions {
            timer: TimerAction::Reset,
            ..Actions::default()
        };
        actions.marks.add(from..view.next_new());
        actions
    }
}

/// Whether a NACK at the window head tells of a loss that is not being repaired yet.
fn is_news(view: &FlowView<'_>) -> bool {
    match view.head() {
        Head::Unsent | Head::Waiting => false,
        Head::Sent => true,
        // An answer to the retransmission takes a round trip; half of the smoothed one leaves room for jitter.
        Head::Resent(at) => view.now() - at >= view.smoothed_rtt().unwrap_or_default() / 2,
    }
}
