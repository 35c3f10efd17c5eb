//! Handles: small numbers for long-lived objects, lowest free one first, as the kernel gives them out.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Objects by handle.
#[derive(Debug)]
pub(super) struct Table<T> {
    slots: Vec<Option<T>>,
    free: BinaryHeap<Reverse<u32>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: BinaryHeap::new(),
        }
    }
}

impl<T> Table<T> {
    /// Store an object under the lowest free handle.
    pub(super) fn insert(&mut self, object: T) -> Option<u32> {
        if let Some(Reverse(handle)) = self.free.pop() {
            self.slots[handle as usize] = Some(object);
            return Some(handle);
        }
        let handle = u32::try_from(self.slots.len())
            .ok()
            .filter(|handle| *handle < MAX_HANDLES)?;
        self.slots.push(Some(object));
        Some(handle)
    }

    /// Take an object out.
    pub(super) fn remove(&mut self, handle: u32) -> Option<T> {
        let object = self.slots.get_mut(handle as usize)?.take()?;
        self.free.push(Reverse(handle));
        Some(object)
    }

    /// The object of a handle.
    pub(super) fn get(&self, handle: u32) -> Option<&T> {
        self.slots.get(handle as usize)?.as_ref()
    }

    /// The object of a handle, to change.
    pub(super) fn get_mut(&mut self, handle: u32) -> Option<&mut T> {
        self.slots.get_mut(handle as usize)?.as_mut()
    }

    /// Every object with its handle, lowest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..)
            .zip(&self.slots)
            .filter_map(|(handle, slot)| Some((handle, slot.as_ref()?)))
    }
}

/// More ids than memory would reasonably hold.
const MAX_HANDLES: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_handle_is_given_out() {
        let mut table = Table::default();
        for expected in 0..4 {
            assert_eq!(table.insert(expected), Some(expected));
        }
        assert_eq!(table.remove(2), Some(2));
        assert_eq!(table.remove(1), Some(1));
        assert_eq!(table.remove(1), None);
        assert_eq!(table.insert(9), Some(1));
        assert_eq!(table.insert(9), Some(2));
        assert_eq!(table.insert(9), Some(4));
        assert_eq!(table.iter().count(), 5);
    }
}
