//! The classic-BPF program that picks, for each packet, a socket of an address's SO_REUSEPORT group.
//!
//! The kernel shows it the UDP payload. It returns an index into the group; an index beyond the group makes the kernel
//! fall back to its hash of the addresses. A load beyond the packet ends the program with 0.
//!
//! ```text
//!  probe                          → the index it names
//!  destination QPN, top byte ≠ 0  → the index of that slot
//!  QP1, CM, names an addressee    → the index of the slot in the top byte of its communication or request id
//!  REQ, SIDR_REQ, anything else   → index 0, whose process delivers it (`ports`, or hand-over)
//! ```

use libc::sock_filter;

use super::probe;

/// Group index of each slot, in ascending order of slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table(Vec<(u8, u8)>);

impl Table {
    /// The table that says where each slot sits: for a slot seen at several indices the lowest counts, for the kernel
    /// answers indices beyond the group with some member chosen by hash.
    pub fn from_answers(answers: impl IntoIterator<Item = (u8, u8)>) -> Self {
        let mut rows: Vec<(u8, u8)> = answers.into_iter().filter(|&(slot, _)| slot != 0).collect();
        rows.sort_unstable();
        rows.dedup_by_key(|row| row.0);
        Self(rows)
    }

    /// Index of `slot`.
    pub fn index_of(&self, slot: u8) -> Option<u8> {
        let row = self.0.binary_search_by_key(&slot, |row| row.0).ok()?;
        self.0.get(row).map(|row| row.1)
    }

    /// Number of slots known.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no slot is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

// Offsets into the UDP payload: BTH 12 bytes, DETH 8, then the MAD with its 24-byte header (IBTA A17, 9.2, 13.4).
const DEST_QPN: u32 = 5;
const MAD: u32 = 20;
const MGMT_CLASS: u32 = MAD + 1;
const ATTR_ID: u32 = MAD + 16;
const BODY: u32 = MAD + 24;

const CLASS_CM: u32 = 0x07;
/// MRA, REJ, REP, RTU, DREQ, DREP: remote communication id at 4 of the body.
const NAMING_REMOTE_ID: [u32; 6] = [0x11, 0x12, 0x13, 0x14, 0x15, 0x16];
/// SIDR_REP: request id, chosen by the addressee, at 0 of the body.
const SIDR_REP: u32 = 0x18;

#[expect(
    clippy::cast_possible_truncation,
    reason = "opcodes fit 16 bits by definition (linux/bpf_common.h)"
)]
mod op {
    pub(super) const LD_W: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    pub(super) const LD_H: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
    pub(super) const LD_B: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
    pub(super) const JEQ: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    pub(super) const JGE: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    pub(super) const JA: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
    pub(super) const RET_K: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    pub(super) const RET_A: u16 = (libc::BPF_RET | libc::BPF_A) as u16;
}

const fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// Skips the next instruction unless A = `k`.
const fn unless_skip(k: u32) -> sock_filter {
    instruction(op::JEQ, 0, 1, k)
}

/// The program for `table`.
pub fn program(table: &Table) -> Vec<sock_filter> {
    let lookup = lookup(&table.0);
    let mut code = Vec::with_capacity(64 + lookup.len());

    // A probe: both words match, or on to the QPN five instructions down.
    code.push(instruction(op::LD_W, 0, 0, 0));
    code.push(instruction(op::JEQ, 0, 4, probe::WORDS[0]));
    code.push(instruction(op::LD_W, 0, 0, 4));
    code.push(instruction(op::JEQ, 0, 2, probe::WORDS[1]));
    code.push(instruction(op::LD_B, 0, 0, probe::INDEX_OFFSET));
    code.push(instruction(op::RET_A, 0, 0, 0));

    // QP1 of slot 0 carrying a CM message: load the slot from its addressee's id.
    let mut mad = vec![
        instruction(op::LD_H, 0, 0, DEST_QPN + 1),
        instruction(op::JEQ, 1, 0, 1),
        instruction(op::RET_K, 0, 0, 0),
        instruction(op::LD_B, 0, 0, MGMT_CLASS),
        instruction(op::JEQ, 1, 0, CLASS_CM),
        instruction(op::RET_K, 0, 0, 0),
        instruction(op::LD_H, 0, 0, ATTR_ID),
    ];
    // Each test jumps over the rest of this tail to the load it wants.
    let tests = NAMING_REMOTE_ID.len() + 1;
    for (i, attr_id) in NAMING_REMOTE_ID.iter().enumerate() {
        let over = u8::try_from(tests - i - 1 + 3).unwrap_or(u8::MAX);
        mad.push(instruction(op::JEQ, over, 0, *attr_id));
    }
    mad.push(instruction(op::JEQ, 1, 0, SIDR_REP));
    mad.push(instruction(op::RET_K, 0, 0, 0));
    mad.push(instruction(op::LD_B, 0, 0, BODY));
    mad.push(instruction(op::JA, 0, 0, 1));
    mad.push(instruction(op::LD_B, 0, 0, BODY + 4));

    code.push(instruction(op::LD_B, 0, 0, DEST_QPN));
    let over = u8::try_from(mad.len()).unwrap_or(u8::MAX);
    code.push(instruction(op::JEQ, 0, over, 0));
    code.extend(mad);
    code.extend(lookup);
    code
}

/// Binary search for the slot in A. Far jumps need JA: conditional ones reach 255 instructions.
fn lookup(rows: &[(u8, u8)]) -> Vec<sock_filter> {
    match rows {
        [] => vec![instruction(op::RET_K, 0, 0, 0)],
        [(slot, index)] => vec![
            unless_skip(u32::from(*slot)),
            instruction(op::RET_K, 0, 0, u32::from(*index)),
            instruction(op::RET_K, 0, 0, 0),
        ],
        _ => {
            let (low, high) = rows.split_at(rows.len() / 2);
            let pivot = high.first().map_or(0, |row| u32::from(row.0));
            let below = lookup(low);
            let distance = u32::try_from(below.len()).unwrap_or(u32::MAX);
            let mut code = vec![instruction(op::JGE, 0, 1, pivot), instruction(op::JA, 0, 0, distance)];
            code.extend(below);
            code.extend(lookup(high));
            code
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel would answer.
    fn run(program: &[sock_filter], packet: &[u8]) -> u32 {
        let load = |offset: u32, len: usize| {
            let offset = usize::try_from(offset).unwrap();
            packet
                .get(offset..offset + len)
                .map(|b| b.iter().fold(0u32, |a, &byte| a << 8 | u32::from(byte)))
        };
        let (mut a, mut at) = (0, 0);
        loop {
            let i = program[at];
            at += 1;
            let branch = |taken: bool| usize::from(if taken { i.jt } else { i.jf });
            match i.code {
                op::LD_W | op::LD_H | op::LD_B => {
                    let len = if i.code == op::LD_W {
                        4
                    } else {
                        1 + usize::from(i.code == op::LD_H)
                    };
                    match load(i.k, len) {
                        Some(value) => a = value,
                        None => return 0,
                    }
                }
                op::JEQ => at += branch(a == i.k),
                op::JGE => at += branch(a >= i.k),
                op::JA => at += usize::try_from(i.k).unwrap(),
                op::RET_K => return i.k,
                op::RET_A => return a,
                code => panic!("unknown opcode {code:#x}"),
            }
        }
    }

    fn packet(qpn: u32) -> Vec<u8> {
        let mut packet = vec![0; 280];
        packet[0] = 0x04;
        packet[4..8].copy_from_slice(&qpn.to_be_bytes());
        packet[4] = 0xc0; // FECN, BECN: not part of the QPN
        packet
    }

    fn mad(attr_id: u8, body: [u8; 8]) -> Vec<u8> {
        let mut packet = packet(1);
        packet[21] = 7;
        packet[37] = attr_id;
        packet[44..52].copy_from_slice(&body);
        packet
    }

    #[test]
    fn every_slot_of_every_table_size_is_found() {
        for members in [0u8, 1, 2, 3, 7, 64, 200, 255] {
            let table = Table::from_answers((0..members).map(|i| (255 - i, i)));
            let program = program(&table);
            assert!(program.len() < 4096);
            for slot in 1..=255u8 {
                let found = run(&program, &packet(u32::from(slot) << 16 | 0x1234));
                assert_eq!(
                    found,
                    table.index_of(slot).map_or(0, u32::from),
                    "{members} members, slot {slot}"
                );
            }
        }
    }

    #[test]
    fn cm_messages_go_to_their_addressee() {
        let program = program(&Table::from_answers([(0xaa, 5), (0xbb, 6)]));
        let body = [0xaa, 1, 2, 3, 0xbb, 4, 5, 6];
        for attr_id in [0x11, 0x12, 0x13, 0x14, 0x15, 0x16] {
            assert_eq!(run(&program, &mad(attr_id, body)), 6, "{attr_id:#x}");
        }
        assert_eq!(run(&program, &mad(0x18, body)), 5);
        for attr_id in [0x10, 0x17, 0x19, 0x1a, 0x01] {
            assert_eq!(run(&program, &mad(attr_id, body)), 0, "{attr_id:#x}");
        }
        let mut other_class = mad(0x13, body);
        other_class[21] = 4;
        assert_eq!(run(&program, &other_class), 0);
        assert_eq!(run(&program, &mad(0x13, [0; 8])), 0);
    }

    #[test]
    fn probes_name_their_index_and_short_packets_go_to_the_first() {
        let program = program(&Table::from_answers([(9, 1)]));
        let probe = probe::Probe {
            index: 77,
            prober: 9,
            round: 1,
        }
        .emit();
        assert_eq!(run(&program, &probe), 77);
        for len in 0..6 {
            assert_eq!(run(&program, &packet(0x09_0000)[..len]), 0);
        }
        assert_eq!(run(&program, &packet(0x09_0000)[..8]), 1);
        assert_eq!(run(&program, &packet(0)), 0);
    }

    #[test]
    fn the_lowest_index_of_a_slot_counts() {
        let table = Table::from_answers([(5, 4), (5, 1), (6, 0), (0, 3), (5, 3)]);
        assert_eq!(
            (table.index_of(5), table.index_of(6), table.index_of(0), table.len()),
            (Some(1), Some(0), None, 2)
        );
    }
}
