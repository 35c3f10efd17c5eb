//! SQ, RQ and CQ rings in host memory.
//!
//! A ring is an array of slots of 64-byte blocks. Producer and consumer indices run freely over 32 bits and are reduced
//! modulo the number of slots (a power of two). Slots are arrays of atomic words, so a driver that breaks the protocol
//! can hand the device garbage, which the device validates, but never undefined behaviour.
//!
//! * [`WorkQueue`]: the driver produces. It writes a slot, then publishes the producer index with release ordering; the
//!   device reads the index with acquire ordering and then the slot. A slot may be written again once its WQE is retired,
//!   which the driver learns from CQEs.
//! * [`CompletionQueue`]: the device produces. Ownership is carried by the owner bit in the last word of the entry, so
//!   the driver polls without reading a device index; the driver publishes its consumer index for overrun detection.

use super::cqe::Cqe;
use super::sync::{AtomicU32, AtomicU64, Ordering};

const WORDS_PER_BLOCK: usize = 8;

/// One 64-byte block, aligned to its cache line.
#[repr(C, align(64))]
#[derive(Debug, Default)]
struct Block([AtomicU64; WORDS_PER_BLOCK]);

/// An index alone in its cache line, so that producer and consumer do not share one.
#[repr(align(64))]
#[derive(Debug, Default)]
struct Index(AtomicU32);

fn blocks(count: usize) -> Box<[Block]> {
    (0..count).map(|_| Block::default()).collect()
}

/// A send or receive queue ring.
#[derive(Debug)]
pub struct WorkQueue {
    slots: Box<[Block]>,
    blocks_per_slot: usize,
    mask: u32,
    producer: Index,
}

impl WorkQueue {
    /// A ring of at least `entries` slots (rounded up to a power of two) of `stride` bytes, a multiple of 64.
    pub fn new(entries: u32, stride: usize) -> Self {
        let entries = entries.max(1).next_power_of_two();
        let blocks_per_slot = (stride / 64).max(1);
        Self {
            slots: blocks(entries as usize * blocks_per_slot),
            blocks_per_slot,
            mask: entries - 1,
            producer: Index::default(),
        }
    }

    /// Number of slots.
    pub fn entries(&self) -> u32 {
        self.mask + 1
    }

    /// Bytes in a slot.
    pub fn stride(&self) -> usize {
        self.blocks_per_slot * 64
    }

    fn slot(&self, index: u32) -> &[Block] {
        let first = (index & self.mask) as usize * self.blocks_per_slot;
        &self.slots[first..first + self.blocks_per_slot]
    }

    /// Driver: write `wqe` into the slot of free-running `index`. Longer input than the slot is cut.
    pub fn write(&self, index: u32, wqe: &[u8]) {
        let words = self.slot(index).iter().flat_map(|block| block.0.iter());
        for (word, bytes) in words.zip(wqe.chunks(8)) {
            let mut value = [0u8; 8];
            value[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(value), Ordering::Relaxed);
        }
    }

    /// Device: copy the slot of free-running `index` into `out`, up to its length.
    pub fn read(&self, index: u32, out: &mut [u8]) {
        let words = self.slot(index).iter().flat_map(|block| block.0.iter());
        for (word, bytes) in words.zip(out.chunks_mut(8)) {
            let value = word.load(Ordering::Relaxed).to_ne_bytes();
            bytes.copy_from_slice(&value[..bytes.len()]);
        }
    }

    /// Driver: publish that all slots before `producer` are written.
    pub fn publish(&self, producer: u32) {
        self.producer.0.store(producer, Ordering::Release);
    }

    /// Device: the published producer index.
    pub fn producer(&self) -> u32 {
        self.producer.0.load(Ordering::Acquire)
    }
}

/// A completion queue ring.
#[derive(Debug)]
pub struct CompletionQueue {
    slots: Box<[Block]>,
    mask: u32,
    consumer: Index,
    arm: Index,
}

/// State of a CQ's notification request, see [`CompletionQueue::arm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// No event asked for.
    Idle,
    /// An event for the next completion.
    Any,
    /// An event for the next solicited or failed completion.
    Solicited,
}

impl CompletionQueue {
    /// A ring of at least `entries` entries, rounded up to a power of two.
    pub fn new(entries: u32) -> Self {
        let entries = entries.max(1).next_power_of_two();
        Self {
            slots: blocks(entries as usize),
            mask: entries - 1,
            consumer: Index::default(),
            arm: Index::default(),
        }
    }

    /// Number of entries.
    pub fn entries(&self) -> u32 {
        self.mask + 1
    }

    /// The owner bit that marks the entry of free-running `index` as written.
    fn owner(&self, index: u32) -> u8 {
        u8::from(index & (self.mask + 1) == 0)
    }

    /// Device: write the entry of free-running `index`. The caller has checked that the slot is free.
    pub fn write(&self, index: u32, cqe: &Cqe) {
        let words: [u64; 8] = bytemuck::cast(Cqe {
            owner: self.owner(index),
            ..*cqe
        });
        let slot = &self.slots[(index & self.mask) as usize].0;
        for (word, value) in slot.iter().zip(words).take(WORDS_PER_BLOCK - 1) {
            word.store(value, Ordering::Relaxed);
        }
        slot[WORDS_PER_BLOCK - 1].store(words[WORDS_PER_BLOCK - 1], Ordering::Release);
    }

    /// Driver: the entry of free-running `index`, if the device has written it.
    pub fn read(&self, index: u32) -> Option<Cqe> {
        let slot = &self.slots[(index & self.mask) as usize].0;
        let last = slot[WORDS_PER_BLOCK - 1].load(Ordering::Acquire);
        if last.to_ne_bytes()[7] & 1 != self.owner(index) {
            return None;
        }
        let mut words = [0u64; 8];
        for (value, word) in words.iter_mut().zip(slot) {
            *value = word.load(Ordering::Relaxed);
        }
        words[WORDS_PER_BLOCK - 1] = last;
        Some(bytemuck::cast(words))
    }

    /// Driver: overwrite an entry already written, keeping its owner bit (to mark it dead).
    pub fn rewrite(&self, index: u32, cqe: &Cqe) {
        self.write(index, cqe);
    }

    /// Driver: publish that all entries before `consumer` are consumed.
    pub fn publish_consumer(&self, consumer: u32) {
        self.consumer.0.store(consumer, Ordering::Release);
    }

    /// Device: the published consumer index.
    pub fn consumer(&self) -> u32 {
        self.consumer.0.load(Ordering::Acquire)
    }

    /// Driver: ask for one event. A request for any completion is not weakened by a later one for solicited only.
    pub fn arm(&self, solicited_only: bool) {
        if solicited_only {
            let _ = self.arm.0.compare_exchange(0, 2, Ordering::AcqRel, Ordering::Acquire);
        } else {
            self.arm.0.store(1, Ordering::Release);
        }
    }

    /// The notification request in force.
    pub fn armed(&self) -> Arm {
        match self.arm.0.load(Ordering::Acquire) {
            0 => Arm::Idle,
            1 => Arm::Any,
            _ => Arm::Solicited,
        }
    }

    /// Device: take the notification request if a completion of that kind fires it.
    pub fn fire(&self, solicited: bool) -> bool {
        match self.armed() {
            Arm::Idle => false,
            Arm::Solicited if !solicited => false,
            _ => self.arm.0.swap(0, Ordering::AcqRel) != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_bit_tells_laps_apart() {
        let cq = CompletionQueue::new(2);
        for index in 0..7 {
            assert_eq!(cq.read(index), None, "entry {index} before it is written");
            cq.write(
                index,
                &Cqe {
                    wr_id: u64::from(index),
                    ..Cqe::default()
                },
            );
            assert_eq!(cq.read(index).map(|cqe| cqe.wr_id), Some(u64::from(index)));
        }
    }

    #[test]
    fn a_slot_returns_what_was_written() {
        let queue = WorkQueue::new(3, 128);
        assert_eq!((queue.entries(), queue.stride()), (4, 128));
        let wqe: Vec<u8> = (0..100).collect();
        queue.write(5, &wqe);
        let mut out = [0u8; 128];
        queue.read(1, &mut out);
        assert_eq!(&out[..100], &wqe[..]);
        queue.publish(6);
        assert_eq!(queue.producer(), 6);
    }

    #[test]
    fn arming_for_any_completion_wins() {
        let cq = CompletionQueue::new(1);
        assert!(!cq.fire(true));
        cq.arm(false);
        cq.arm(true);
        assert!(cq.fire(false));
        cq.arm(true);
        assert!(!cq.fire(false));
        assert!(cq.fire(true));
        assert!(!cq.fire(true));
    }
}
