//! The port's GID table: RoCEv2 entries only, the interface's addresses in the order the port layer gives them.

use nic_model::host_if::Gid;

/// Entries of the table, populated or not.
pub const GID_TABLE_LEN: u8 = 16;

/// Addresses of a port.
#[derive(Clone, Debug)]
pub struct GidTable {
    entries: [Gid; GID_TABLE_LEN as usize],
    ifindex: u32,
}

impl GidTable {
    /// A table holding `gids` from index 0 on; what does not fit is left out.
    pub fn new(gids: impl IntoIterator<Item = Gid>, ifindex: u32) -> Self {
        let mut entries = [Gid::default(); GID_TABLE_LEN as usize];
        for (entry, gid) in entries.iter_mut().zip(gids) {
            *entry = gid;
        }
        Self { entries, ifindex }
    }

    /// The entry at `index`: zero when it is empty, `None` outside the table.
    pub fn get(&self, index: u32) -> Option<Gid> {
        self.entries.get(usize::try_from(index).ok()?).copied()
    }

    /// Index of an address.
    pub fn find(&self, gid: Gid) -> Option<u8> {
        self.iter().find(|(_, entry)| *entry == gid).map(|(index, _)| index)
    }

    /// The populated entries, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u8, Gid)> + '_ {
        (0..).zip(self.entries).filter(|(_, gid)| !gid.is_zero())
    }

    /// The interface the addresses belong to.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups_by_index_and_by_address() {
        let gid = |text: &str| Gid::from_ip(text.parse().unwrap());
        let table = GidTable::new([gid("10.0.0.1"), Gid::default(), gid("fe80::1")], 7);
        assert_eq!(table.get(0), Some(gid("10.0.0.1")));
        assert_eq!(table.get(1), Some(Gid::default()));
        assert_eq!(table.get(15), Some(Gid::default()));
        assert_eq!(table.get(16), None);
        assert_eq!(table.find(gid("fe80::1")), Some(2));
        assert_eq!(table.find(gid("10.0.0.2")), None);
        assert_eq!(table.find(Gid::default()), None, "an empty slot is no address");
        assert_eq!(table.iter().map(|(index, _)| index).collect::<Vec<_>>(), [0, 2]);
    }

    #[test]
    fn surplus_addresses_are_left_out() {
        let table = GidTable::new((0..40u8).map(|n| Gid([n + 1; 16])), 1);
        assert_eq!(table.iter().count(), 16);
    }
}
