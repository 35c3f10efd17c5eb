//! Timers: repetitions, the end of TIMEWAIT, forgotten datagram replies. All in one ordered set.

use nic_model::time::Time;

use super::Core;
use super::command::PortSpace;
use super::event::{EventKind, Param};
use super::id::IdState;
use super::sidr::RemoteRequest;
use super::state::{Event, State, Transition};

/// What a deadline is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A connection's outstanding message, or its TIMEWAIT.
    Connection(u32),
    /// An unanswered datagram service request.
    Request(u32),
    /// A listener's next request has waited long enough for the one before.
    Pace(u32),
    /// A datagram reply kept for duplicates.
    Reply(RemoteRequest),
    /// A port whose listener is gone.
    Port(PortSpace, u16),
}

impl Core {
    /// When [`Self::handle_timeout`] has something to do next. May change with every other call.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        self.timers.first().map(|(time, _)| *time)
    }

    /// Do what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        while let Some((_, timer)) = self.timers.first().copied().filter(|(time, _)| *time <= now) {
            match timer {
                Timer::Connection(comm_id) => self.connection_timeout(comm_id),
                Timer::Pace(listener) => {
                    self.timers.pop_first();
                    self.end_pace(listener);
                }
                Timer::Request(request) => self.request_timeout(request),
                Timer::Reply(request) => self.reply_timeout(&request),
                Timer::Port(space, port) => {
                    self.timers.pop_first();
                    self.ports.forget(space, port);
                }
            }
        }
    }

    fn connection_timeout(&mut self, comm_id: u32) {
        self.set_deadline(comm_id, None);
        let Some(connection) = self.connections.get_mut(comm_id) else {
            return;
        };
        if connection.state == State::TimeWait {
            let owner = connection.owner;
            self.step(comm_id, Event::Expired);
            if let Some(owner) = owner
                && self.ids.get(owner).is_some_and(|id| id.state == IdState::Disconnected)
            {
                self.report(owner, EventKind::TimewaitExit, 0, Param::None);
            }
            return;
        }
        if connection.attempt < connection.attempts {
            connection.attempt += 1;
            let patient = matches!(connection.state, State::MraReqReceived | State::MraRepReceived);
            let wait = if patient {
                self.timing.patient_retry
            } else {
                self.timing.wait(connection.attempt)
            };
            self.send_again(comm_id);
            self.set_deadline(comm_id, Some(self.now + wait));
            return;
        }
        let owner = connection.owner;
        let was = connection.state;
        if !matches!(self.step(comm_id, Event::Exhausted), Transition::Go(_)) {
            return;
        }
        if was == State::DreqSent {
            self.report_end(comm_id, -libc::ETIMEDOUT);
        } else if let Some(owner) = owner {
            self.report(owner, EventKind::Unreachable, -libc::ETIMEDOUT, Param::None);
        }
    }
}
