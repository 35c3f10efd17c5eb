//! What may happen to a packet on its way: random faults with a seed, and scripted ones.

use super::frame::SimFrame;
use crate::time::Duration;
use core::fmt;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Random faults, each with its probability for one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// The packet vanishes.
    pub loss: f64,
    /// The packet is held back by up to [`hold`](Self::hold), so that later ones overtake it.
    pub reorder: f64,
    /// The packet arrives twice, the second time held back.
    pub duplicate: f64,
    /// One bit of the packet flips.
    pub corrupt: f64,
    /// Longest time a packet is held back. Zero: ten microseconds.
    pub hold: Duration,
}

/// What a rule decides about a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// Leave it to the other rules and to the random faults.
    #[default]
    Pass,
    /// Deliver it whatever the random faults say.
    Deliver,
    /// Lose it.
    Drop,
    /// Hold it back for so long.
    Delay(Duration),
    /// Deliver it, and once more after so long.
    Duplicate(Duration),
    /// Flip a bit of it.
    Corrupt,
    /// Mark Congestion Experienced.
    Mark,
}

/// A scripted fault: sees the running number of the packet on its link and the packet.
type Rule = Box<dyn FnMut(u64, &SimFrame) -> Verdict + Send>;

/// What will happen to one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fate {
    pub(super) lost: bool,
    pub(super) marked: bool,
    /// Extra delay.
    pub(super) held: Duration,
    /// A copy arrives, with this extra delay.
    pub(super) copy: Option<Duration>,
    /// Which bit flips, modulo the packet's length.
    pub(super) flipped: Option<usize>,
}

/// Decides the fate of every packet of a link.
pub(super) struct FaultSource {
    faults: Faults,
    rules: Vec<Rule>,
    rng: SmallRng,
    seen: u64,
}

impl fmt::Debug for FaultSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultSource")
            .field("faults", &self.faults)
            .field("rules", &self.rules.len())
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

const DEFAULT_HOLD: Duration = Duration::from_micros(10);

impl FaultSource {
    pub(super) fn new(faults: Faults, seed: u64) -> Self {
        Self {
            faults,
            rules: Vec::new(),
            rng: SmallRng::seed_from_u64(seed),
            seen: 0,
        }
    }

    pub(super) fn set(&mut self, faults: Faults) {
        self.faults = faults;
    }

    pub(super) fn push(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    pub(super) fn clear(&mut self) {
        self.rules.clear();
    }

    pub(super) fn decide(&mut self, frame: &SimFrame) -> Fate {
        let number = self.seen;
        self.seen += 1;
        let verdict = self
            .rules
            .iter_mut()
            .map(|rule| rule(number, frame))
            .find(|verdict| *verdict != Verdict::Pass);
        match verdict.unwrap_or_default() {
            Verdict::Pass => self.roll(),
            Verdict::Deliver => Fate::default(),
            Verdict::Drop => Fate {
                lost: true,
                ..Fate::default()
            },
            Verdict::Delay(held) => Fate {
                held,
                ..Fate::default()
            },
            Verdict::Duplicate(after) => Fate {
                copy: Some(after),
                ..Fate::default()
            },
            Verdict::Corrupt => Fate {
                flipped: Some(self.rng.random_range(0..1 << 20)),
                ..Fate::default()
            },
            Verdict::Mark => Fate {
                marked: true,
                ..Fate::default()
            },
        }
    }

    /// Every probability is rolled for every packet, so that one fault's knob does not change when others strike.
    fn roll(&mut self) -> Fate {
        let faults = self.faults;
        let mut strikes = |probability: f64| self.rng.random::<f64>() < probability;
        let (lost, held, copied, corrupt) = (
            strikes(faults.loss),
            strikes(faults.reorder),
            strikes(faults.duplicate),
            strikes(faults.corrupt),
        );
        let longest = if faults.hold.is_zero() {
            DEFAULT_HOLD
        } else {
            faults.hold
        };
        let mut hold = || longest.mul_f64(self.rng.random::<f64>());
        let (first, second) = (hold(), hold());
        let bit = self.rng.random_range(0..1 << 20);
        Fate {
            lost,
            marked: false,
            held: if held { first } else { Duration::ZERO },
            copy: copied.then_some(second),
            flipped: corrupt.then_some(bit),
        }
    }
}
