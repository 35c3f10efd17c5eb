//! Encoding of work requests, WR by WR.

use super::*;
use crate::abi::verbs::{
    ibv_ah, ibv_send_wr_imm, ibv_send_wr_wr, ibv_send_wr_wr_atomic, ibv_send_wr_wr_rdma, ibv_send_wr_wr_ud,
};
use crate::objects::handle;
use nic_model::host_if::wqe::send_stride;

const CAP: ibv_qp_cap = ibv_qp_cap {
    max_send_wr: 4,
    max_recv_wr: 4,
    max_send_sge: 3,
    max_recv_sge: 1,
    max_inline_data: 96,
};

fn wr(opcode: u32, sges: &mut [ibv_sge]) -> ibv_send_wr {
    // SAFETY: a work request is made of integers and pointers.
    let mut wr: ibv_send_wr = unsafe { handle::zeroed() };
    wr.wr_id = 0x1122;
    wr.opcode = opcode;
    wr.sg_list = sges.as_mut_ptr();
    wr.num_sge = i32::try_from(sges.len()).unwrap();
    wr.imm = ibv_send_wr_imm { imm_data: 0x0403_0201 };
    wr
}

fn encoded(qp_type: QpType, wr: &ibv_send_wr) -> Result<Vec<u8>, Errno> {
    let mut wqe = vec![0xee; send_stride(CAP.max_send_sge, CAP.max_inline_data)];
    // SAFETY: the tests' work requests point to what they say.
    let length = unsafe { encode(qp_type, &CAP, wr, &mut wqe) }?;
    wqe.truncate(length);
    Ok(wqe)
}

fn at<T: bytemuck::Pod>(wqe: &[u8], offset: usize) -> T {
    bytemuck::pod_read_unaligned(&wqe[offset..offset + size_of::<T>()])
}

fn sge(addr: u64, length: u32) -> ibv_sge {
    ibv_sge {
        addr,
        length,
        lkey: 0x99,
    }
}

#[test]
fn write_with_immediate() {
    let mut sges = [sge(0x1000, 10), sge(0x2000, 20)];
    let mut wr = wr(1, &mut sges);
    wr.send_flags = 1 | 2 | 4 | 16;
    wr.wr = ibv_send_wr_wr {
        rdma: ibv_send_wr_wr_rdma {
            remote_addr: 0xaaaa,
            rkey: 0xbb,
        },
    };
    let wqe = encoded(QpType::Rc, &wr).unwrap();
    assert_eq!(wqe.len(), 64);
    let ctrl: SendCtrl = at(&wqe, 0);
    assert_eq!(
        ctrl,
        SendCtrl {
            opcode: 1,
            flags: 7,
            num_sge: 2,
            reserved: 0,
            imm: 0x0403_0201,
            wr_id: 0x1122
        }
    );
    assert_eq!(
        at::<RemoteSeg>(&wqe, 16),
        RemoteSeg {
            addr: 0xaaaa,
            rkey: 0xbb,
            inline_len: 0
        }
    );
    assert_eq!(
        at::<DataSeg>(&wqe, 48),
        DataSeg {
            addr: 0x2000,
            length: 20,
            lkey: 0x99
        }
    );
}

#[test]
fn atomics() {
    let mut sges = [sge(0x1000, 8)];
    let mut wr = wr(5, &mut sges);
    wr.wr = ibv_send_wr_wr {
        atomic: ibv_send_wr_wr_atomic {
            remote_addr: 8,
            compare_add: 3,
            swap: 4,
            rkey: 5,
        },
    };
    let wqe = encoded(QpType::Rc, &wr).unwrap();
    assert_eq!(
        at::<RemoteSeg>(&wqe, 16),
        RemoteSeg {
            addr: 8,
            rkey: 5,
            inline_len: 0
        }
    );
    assert_eq!(
        at::<AtomicSeg>(&wqe, 32),
        AtomicSeg {
            swap_add: 4,
            compare: 3
        }
    );
    assert_eq!(
        at::<DataSeg>(&wqe, 48),
        DataSeg {
            addr: 0x1000,
            length: 8,
            lkey: 0x99
        }
    );
    wr.opcode = 6;
    let wqe = encoded(QpType::Rc, &wr).unwrap();
    assert_eq!(
        at::<AtomicSeg>(&wqe, 32),
        AtomicSeg {
            swap_add: 3,
            compare: 0
        }
    );
}

#[test]
fn inline_data_is_gathered() {
    let parts = [vec![1u8; 40], vec![], vec![2u8; 56]];
    let mut sges: Vec<_> = parts
        .iter()
        .map(|part| {
            sge(
                part.as_ptr().expose_provenance() as u64,
                u32::try_from(part.len()).unwrap(),
            )
        })
        .collect();
    let mut wr = wr(2, &mut sges);
    wr.send_flags = IBV_SEND_INLINE;
    let wqe = encoded(QpType::Rc, &wr).unwrap();
    assert_eq!(wqe.len(), 32 + 96);
    assert_eq!(at::<SendCtrl>(&wqe, 0).num_sge, 0);
    assert_eq!(at::<RemoteSeg>(&wqe, 16).inline_len, 96);
    assert_eq!((&wqe[32..72], &wqe[72..]), (&[1; 40][..], &[2; 56][..]));
    sges[2].length = 57;
    wr.sg_list = sges.as_mut_ptr();
    assert_eq!(
        encoded(QpType::Rc, &wr),
        Err(Errno::INVAL),
        "one byte more than the QP was made for"
    );
}

#[test]
fn datagrams_carry_an_address_handle() {
    let mut ah = ibv_ah {
        context: std::ptr::null_mut(),
        pd: std::ptr::null_mut(),
        handle: 77,
    };
    let mut sges = [sge(0x1000, 8)];
    let mut wr = wr(3, &mut sges);
    wr.wr = ibv_send_wr_wr {
        ud: ibv_send_wr_wr_ud {
            ah: &raw mut ah,
            remote_qpn: 6,
            remote_qkey: 7,
        },
    };
    let wqe = encoded(QpType::Ud, &wr).unwrap();
    assert_eq!(
        at::<UdSeg>(&wqe, 16),
        UdSeg {
            ah: 77,
            qpn: 6,
            qkey: 7,
            inline_len: 0
        }
    );
    wr.wr = ibv_send_wr_wr {
        ud: ibv_send_wr_wr_ud {
            ah: std::ptr::null_mut(),
            remote_qpn: 6,
            remote_qkey: 7,
        },
    };
    assert_eq!(encoded(QpType::Ud, &wr), Err(Errno::INVAL));
}

#[test]
fn each_transport_has_its_opcodes() {
    let mut one = [sge(0x1000, 8)];
    for opcode in 0..=6 {
        assert!(encoded(QpType::Rc, &wr(opcode, &mut one)).is_ok(), "{opcode}");
    }
    for opcode in [7, 8, 9] {
        assert_eq!(
            encoded(QpType::Rc, &wr(opcode, &mut one)),
            Err(Errno::OPNOTSUPP),
            "{opcode}"
        );
    }
    for opcode in [10, 11, 15, 256 + 2] {
        assert_eq!(
            encoded(QpType::Rc, &wr(opcode, &mut one)),
            Err(Errno::INVAL),
            "{opcode}"
        );
    }
    for opcode in [0, 1, 4, 5, 6, 9] {
        assert_eq!(
            encoded(QpType::Ud, &wr(opcode, &mut one)),
            Err(Errno::INVAL),
            "{opcode}"
        );
    }
}

#[test]
fn impossible_requests_are_refused() {
    let mut sges = [sge(0x1000, 8); 4];
    assert_eq!(
        encoded(QpType::Rc, &wr(2, &mut sges)),
        Err(Errno::INVAL),
        "too many segments"
    );
    let mut negative = wr(2, &mut sges[..1]);
    negative.num_sge = -1;
    assert_eq!(encoded(QpType::Rc, &negative), Err(Errno::INVAL));
    for opcode in [4, 5, 6] {
        let mut inline = wr(opcode, &mut sges[..1]);
        inline.send_flags = IBV_SEND_INLINE;
        assert_eq!(
            encoded(QpType::Rc, &inline),
            Err(Errno::INVAL),
            "{opcode} with inline data"
        );
    }
    assert_eq!(
        encoded(QpType::Rc, &wr(5, &mut sges[..2])),
        Err(Errno::INVAL),
        "atomic with two segments"
    );
    assert_eq!(
        encoded(QpType::Rc, &wr(2, &mut [])).unwrap().len(),
        32,
        "an empty message is fine"
    );
}

#[test]
fn slots_come_back_only_by_polling() {
    let sq = SendQueue::new(Arc::new(WorkQueue::new(4, 64)), 3);
    let rts = QpState::Rts as u8;
    for index in 0..3 {
        assert_eq!(can_post(rts, index, &sq), Ok(()));
    }
    assert_eq!(
        can_post(rts, 3, &sq),
        Err(Errno::NOMEM),
        "as many as asked for, not as the ring has"
    );
    sq.retire(1);
    assert_eq!(can_post(rts, 4, &sq), Ok(()));
    assert_eq!(can_post(rts, 5, &sq), Err(Errno::NOMEM));
    sq.retire(0);
    assert_eq!(
        can_post(rts, 5, &sq),
        Err(Errno::NOMEM),
        "an older completion takes nothing back"
    );
    for state in [QpState::Reset, QpState::Init, QpState::Rtr] {
        assert_eq!(can_post(state as u8, 2, &sq), Err(Errno::INVAL));
    }
    for state in [QpState::Sqd, QpState::Sqe, QpState::Err] {
        assert_eq!(can_post(state as u8, 2, &sq), Ok(()));
    }
}
