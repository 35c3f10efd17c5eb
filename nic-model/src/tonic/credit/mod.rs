//! Credit engine: when the head of a flow's ring may leave (tonic.md §1.5). One file for each scheme.

pub(crate) mod grant;
pub(crate) mod rate;
pub(crate) mod window;

use super::program::{CreditScheme, FlowParams, Initial};
use super::ring::Run;
use crate::time::Time;
use grant::GrantCredit;
use rate::{Pacing, RateCredit};

/// Answer of a credit scheme about the head of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It may leave.
    Ready,
    /// It may leave at this instant, if the rate stays.
    At(Time),
    /// It waits for tokens.
    Wait,
}

/// Credit of one flow.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Credit {
    Window,
    Rate(RateCredit),
    Grant(GrantCredit),
}

impl Credit {
    pub(crate) fn new(scheme: CreditScheme, params: &FlowParams, initial: &Initial, pacing: Pacing, now: Time) -> Self {
        match scheme {
            CreditScheme::Window => Self::Window,
            CreditScheme::Rate | CreditScheme::WindowAndRate => Self::Rate(RateCredit::new(
                params.segment_size,
                initial.rate_bps.unwrap_or(0),
                pacing,
                now,
            )),
            CreditScheme::Grant => Self::Grant(GrantCredit::new(params.segment_size, initial.grant)),
        }
    }

    /// Whether the head of the ring, a run of `head`, may leave.
    #[inline]
    pub(crate) fn verdict(&mut self, now: Time, head: Run, length: &mut dyn FnMut(u64) -> u32) -> Verdict {
        match self {
            Self::Window => window::VERDICT,
            Self::Rate(rate) if rate.is_unlimited() => Verdict::Ready,
            Self::Rate(rate) => rate.verdict(now, head.count, length(head.first)),
            Self::Grant(grant) => grant.verdict(length(head.first)),
        }
    }

    /// Pays for a burst: as many segments from the front of `head` as credit and `most` allow.
    #[inline]
    pub(crate) fn spend(&mut self, now: Time, head: Run, most: u16, length: &mut dyn FnMut(u64) -> u32) -> u16 {
        let most = most.min(head.count);
        match self {
            Self::Window => most,
            Self::Rate(rate) if rate.is_unlimited() => most,
            Self::Rate(rate) => rate.spend(now, head.first, most, length),
            Self::Grant(grant) => grant.spend(head.first, most, length),
        }
    }

    /// `count` segments of the last burst were not sent after all.
    pub(crate) fn refund(&mut self, count: u16) {
        match self {
            Self::Window => {}
            Self::Rate(rate) => rate.refund(count),
            Self::Grant(grant) => grant.refund(count),
        }
    }

    /// The ring is empty: nothing waits for credit.
    #[inline]
    pub(crate) const fn stop_waiting(&mut self) {
        match self {
            Self::Window => {}
            Self::Rate(rate) => rate.stop_waiting(),
            Self::Grant(grant) => grant.stop_waiting(),
        }
    }
}
