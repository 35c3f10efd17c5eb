//! Grant scheme: tokens of the receiver, one full segment each.
//!
//! Pull counters are cumulative, so a lost pull is made good by the next and a late one changes nothing.

use super::Verdict;

/// Tokens a flow can hold: more than the largest window is of no use and surplus pulls must not pile up.
const MAX_TOKENS: u64 = 2_048;

/// Credit in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrantCredit {
    credit: u64,
    /// Highest pull counter seen.
    pulls: u64,
    segment_size: u32,
    last_cost: u64,
    last_count: u16,
    waiting: bool,
}

impl GrantCredit {
    pub(super) fn new(segment_size: u32, segments: u16) -> Self {
        let mut credit = Self {
            credit: 0,
            pulls: 0,
            segment_size,
            last_cost: 0,
            last_count: 0,
            waiting: false,
        };
        credit.add(u64::from(segments));
        credit
    }

    /// Adds `segments` tokens; answers whether the head of the ring waits for them.
    pub(crate) fn add(&mut self, segments: u64) -> bool {
        let most = MAX_TOKENS * u64::from(self.segment_size);
        let more = segments.saturating_mul(u64::from(self.segment_size));
        self.credit = self.credit.saturating_add(more).min(most);
        self.waiting
    }

    /// A cumulative pull counter arrived; answers whether the head of the ring waits for its tokens.
    pub(crate) fn pull(&mut self, counter: u64) -> bool {
        let tokens = counter.saturating_sub(self.pulls);
        self.pulls = self.pulls.max(counter);
        self.add(tokens)
    }

    /// A token is worth a segment whatever its headers are.
    fn cost(&self, length: u32) -> u64 {
        u64::from(length.min(self.segment_size))
    }

    pub(super) fn verdict(&mut self, length: u32) -> Verdict {
        self.waiting = self.credit < self.cost(length);
        if self.waiting { Verdict::Wait } else { Verdict::Ready }
    }

    pub(super) fn spend(&mut self, first: u64, most: u16, length: &mut dyn FnMut(u64) -> u32) -> u16 {
        let mut count = 0;
        self.last_cost = 0;
        while count < most {
            let cost = self.cost(length(first + u64::from(count)));
            if cost > self.credit {
                break;
            }
            self.credit -= cost;
            self.last_cost += cost;
            count += 1;
        }
        self.last_count = count;
        count
    }

    pub(super) fn refund(&mut self, count: u16) {
        let count = count.min(self.last_count);
        if count > 0 {
            let back = self.last_cost * u64::from(count) / u64::from(self.last_count);
            self.credit += back;
            self.last_cost -= back;
            self.last_count -= count;
        }
    }

    pub(super) const fn stop_waiting(&mut self) {
        self.waiting = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_and_late_pulls_are_harmless() {
        let mut grant = GrantCredit::new(1_000, 0);
        assert_eq!(grant.verdict(1_000), Verdict::Wait);
        assert!(grant.pull(3), "pulls 1 and 2 were lost");
        assert_eq!(grant.verdict(1_000), Verdict::Ready);
        grant.pull(2);
        assert_eq!(grant.spend(0, 8, &mut |_| 1_000), 3);
        assert_eq!(grant.spend(3, 8, &mut |_| 1_000), 0);
    }

    #[test]
    fn surplus_tokens_are_capped_and_refunds_restore_them() {
        let mut grant = GrantCredit::new(1_000, 0);
        grant.pull(u64::MAX);
        assert_eq!(grant.credit, MAX_TOKENS * 1_000);
        assert_eq!(grant.spend(0, 4, &mut |_| 1_100), 4);
        grant.refund(4);
        assert_eq!(grant.credit, MAX_TOKENS * 1_000);
    }
}
