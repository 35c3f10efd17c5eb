//! Registered memory with canaries around it.

use core::sync::atomic::{AtomicU64, Ordering};

/// Bytes of canary on either side.
const MARGIN: usize = 64;
const CANARY: u8 = 0xc5;

/// Memory of a host: `len` bytes between two canaries, registered under `key`.
#[derive(Debug)]
pub(crate) struct Buffer {
    words: Box<[AtomicU64]>,
    len: usize,
    /// lkey and rkey.
    pub(crate) key: u32,
    /// Address of the first byte, by which work requests name it.
    pub(crate) addr: u64,
}

impl Buffer {
    /// `len` zero bytes, not registered yet.
    pub(crate) fn new(len: usize) -> Self {
        let words: Box<[AtomicU64]> = (0..(len + 2 * MARGIN).div_ceil(8)).map(|_| AtomicU64::new(0)).collect();
        let addr = words.as_ptr() as u64 + MARGIN as u64;
        let mut buffer = Self {
            words,
            len,
            key: 0,
            addr,
        };
        let total = buffer.words.len() * 8;
        buffer.put(0, &vec![CANARY; total]);
        buffer.fill(&vec![0; len]);
        buffer
    }

    fn put(&mut self, start: usize, bytes: &[u8]) {
        let mut all = self.all();
        all[start..start + bytes.len()].copy_from_slice(bytes);
        for (word, bytes) in self.words.iter_mut().zip(all.chunks_exact(8)) {
            *word.get_mut() = u64::from_ne_bytes(bytes.try_into().unwrap());
        }
    }

    fn all(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.words.len() * 8);
        for word in &self.words {
            all.extend_from_slice(&word.load(Ordering::Acquire).to_ne_bytes());
        }
        all
    }

    /// Write `bytes` at the start.
    pub(crate) fn fill(&mut self, bytes: &[u8]) {
        self.fill_at(0, bytes);
    }

    /// Write `bytes` at `offset`.
    pub(crate) fn fill_at(&mut self, offset: usize, bytes: &[u8]) {
        self.put(MARGIN + offset, bytes);
    }

    /// Bytes that differ from their neighbours and with `seed`.
    pub(crate) fn fill_pattern(&mut self, seed: u64) -> Vec<u8> {
        let bytes = pattern(self.len, seed);
        self.fill(&bytes);
        bytes
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.all()[MARGIN..MARGIN + self.len].to_vec()
    }

    /// The 64-bit word at `offset`, in host order.
    pub(crate) fn word(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(self.bytes()[offset..offset + 8].try_into().unwrap())
    }

    /// Nothing outside the registered bytes has changed.
    pub(crate) fn assert_intact(&self) {
        let all = self.all();
        let outside = all[..MARGIN].iter().chain(&all[MARGIN + self.len..]);
        assert!(
            outside.into_iter().all(|byte| *byte == CANARY),
            "bytes outside the region were written"
        );
    }

    /// Length in bytes.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.assert_intact();
        }
    }
}

/// `len` bytes that depend on `seed` and differ from their neighbours.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
