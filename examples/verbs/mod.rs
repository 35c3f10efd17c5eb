//! One reliable connection on rdma-sys, as small as the examples allow: a device, a registered buffer, a QP, a CQ.
//!
//! The peers tell each other QP number, PSN, GID and the buffer's address and key in one line of text over TCP, as
//! perftest does without `-R`. The buffer is owned by the endpoint and stays where it is while the NIC may write to it.
#![allow(dead_code, unreachable_pub, reason = "every example uses a part of it")]

use std::ffi::CStr;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::ptr;

use rdma_sys::*;

/// Work requests and completions an endpoint can have outstanding.
pub const DEPTH: u32 = 512;
/// READs and atomics outstanding at once.
const READ_DEPTH: u8 = 16;

/// Which side of the connection this process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Role {
    /// Waits for the peer.
    Server,
    /// Comes to the peer.
    Client,
}

/// What a peer has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Card {
    /// QP number.
    pub qpn: u32,
    /// First PSN sent.
    pub psn: u32,
    /// Address of the buffer.
    pub va: u64,
    /// Its remote key.
    pub rkey: u32,
    /// GID.
    pub gid: u128,
}

/// One work request; the buffer range is given in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Comes back in the completion.
    pub id: u64,
    /// A constant of `ibv_wr_opcode`.
    pub opcode: ibv_wr_opcode::Type,
    /// Start in the own buffer.
    pub offset: usize,
    /// Length.
    pub length: u32,
    /// Whether it makes a completion.
    pub signaled: bool,
    /// Address and key at the peer, for WRITE, READ and atomics.
    pub remote: (u64, u32),
    /// What a fetch-and-add adds.
    pub add: u64,
}

/// A successful completion.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// The work request's id.
    pub id: u64,
    /// Bytes received.
    pub bytes: u32,
}

/// A QP with its CQ and one registered buffer.
#[derive(Debug)]
pub struct Endpoint {
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    cq: *mut ibv_cq,
    qp: *mut ibv_qp,
    mr: *mut ibv_mr,
    memory: *mut u64,
    words: usize,
    mtu: ibv_mtu::Type,
    card: Card,
}

impl Endpoint {
    /// Opens the device of that name, or the first, and makes a QP and a zeroed buffer of `bytes`.
    pub fn open(device: Option<&str>, bytes: usize) -> io::Result<Self> {
        let words = bytes.div_ceil(8).max(1);
        let memory = Box::into_raw(vec![0_u64; words].into_boxed_slice()).cast::<u64>();
        let context = open_device(device)?;
        // SAFETY: each object is made from the ones before it, which stay alive until Drop; the buffer is owned by the
        // endpoint, is `words` long and outlives its registration.
        unsafe {
            let pd = made(ibv_alloc_pd(context))?;
            let cq = made(ibv_create_cq(
                context,
                signed(2 * DEPTH),
                ptr::null_mut(),
                ptr::null_mut(),
                0,
            ))?;
            let mr = made(ibv_reg_mr(pd, memory.cast(), words * 8, signed(access())))?;
            let mut init: ibv_qp_init_attr = std::mem::zeroed();
            init.send_cq = cq;
            init.recv_cq = cq;
            init.qp_type = ibv_qp_type::IBV_QPT_RC;
            init.cap.max_send_wr = DEPTH;
            init.cap.max_recv_wr = DEPTH;
            init.cap.max_send_sge = 1;
            init.cap.max_recv_sge = 1;
            let qp = made(ibv_create_qp(pd, &raw mut init))?;
            let mut port: ibv_port_attr = std::mem::zeroed();
            check(___ibv_query_port(context, 1, &raw mut port))?;
            let mut gid = ibv_gid { raw: [0; 16] };
            check(ibv_query_gid(context, 1, 0, &raw mut gid))?;
            let qpn = (*qp).qp_num;
            let card = Card {
                qpn,
                psn: qpn.wrapping_mul(0x9e37_79b1) >> 8,
                va: memory as u64,
                rkey: (*mr).rkey,
                gid: u128::from_be_bytes(gid.raw),
            };
            Ok(Self {
                context,
                pd,
                cq,
                qp,
                mr,
                memory,
                words,
                mtu: port.active_mtu,
                card,
            })
        }
    }

    /// What the peer has to know.
    pub fn card(&self) -> Card {
        self.card
    }

    /// Moves the QP to RTS towards the peer.
    pub fn connect(&mut self, peer: &Card) -> io::Result<()> {
        // SAFETY: a zeroed ibv_qp_attr is valid, and the masks name the fields that are set.
        unsafe {
            let mut attr: ibv_qp_attr = std::mem::zeroed();
            attr.qp_state = ibv_qp_state::IBV_QPS_INIT;
            attr.port_num = 1;
            attr.qp_access_flags = access();
            self.modify(
                &mut attr,
                &[
                    ibv_qp_attr_mask::IBV_QP_STATE,
                    ibv_qp_attr_mask::IBV_QP_PKEY_INDEX,
                    ibv_qp_attr_mask::IBV_QP_PORT,
                    ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS,
                ],
            )?;

            attr.qp_state = ibv_qp_state::IBV_QPS_RTR;
            attr.path_mtu = self.mtu;
            attr.dest_qp_num = peer.qpn;
            attr.rq_psn = peer.psn;
            attr.max_dest_rd_atomic = READ_DEPTH;
            attr.min_rnr_timer = 12;
            attr.ah_attr.is_global = 1;
            attr.ah_attr.port_num = 1;
            attr.ah_attr.grh.dgid = ibv_gid {
                raw: peer.gid.to_be_bytes(),
            };
            attr.ah_attr.grh.sgid_index = 0;
            attr.ah_attr.grh.hop_limit = 64;
            self.modify(
                &mut attr,
                &[
                    ibv_qp_attr_mask::IBV_QP_STATE,
                    ibv_qp_attr_mask::IBV_QP_AV,
                    ibv_qp_attr_mask::IBV_QP_PATH_MTU,
                    ibv_qp_attr_mask::IBV_QP_DEST_QPN,
                    ibv_qp_attr_mask::IBV_QP_RQ_PSN,
                    ibv_qp_attr_mask::IBV_QP_MAX_DEST_RD_ATOMIC,
                    ibv_qp_attr_mask::IBV_QP_MIN_RNR_TIMER,
                ],
            )?;

            attr.qp_state = ibv_qp_state::IBV_QPS_RTS;
            attr.sq_psn = self.card.psn;
            attr.timeout = 14;
            attr.retry_cnt = 7;
            attr.rnr_retry = 7;
            attr.max_rd_atomic = READ_DEPTH;
            self.modify(
                &mut attr,
                &[
                    ibv_qp_attr_mask::IBV_QP_STATE,
                    ibv_qp_attr_mask::IBV_QP_SQ_PSN,
                    ibv_qp_attr_mask::IBV_QP_TIMEOUT,
                    ibv_qp_attr_mask::IBV_QP_RETRY_CNT,
                    ibv_qp_attr_mask::IBV_QP_RNR_RETRY,
                    ibv_qp_attr_mask::IBV_QP_MAX_QP_RD_ATOMIC,
                ],
            )
        }
    }

    fn modify(&self, attr: &mut ibv_qp_attr, mask: &[ibv_qp_attr_mask]) -> io::Result<()> {
        let mask = mask.iter().fold(0, |all, one| all | one.0);
        // SAFETY: the QP is alive and `attr` is a complete ibv_qp_attr.
        check(unsafe { ibv_modify_qp(self.qp, attr, signed(mask)) })
    }

    /// Posts a RECV into a range of the buffer.
    pub fn post_receive(&self, id: u64, offset: usize, length: u32) -> io::Result<()> {
        let mut sge = self.sge(offset, length);
        // SAFETY: a zeroed ibv_recv_wr is valid; request and list are read before the call returns, and the range lies
        // in the registered buffer (`sge` checked it).
        unsafe {
            let mut request: ibv_recv_wr = std::mem::zeroed();
            request.wr_id = id;
            request.sg_list = &raw mut sge;
            request.num_sge = 1;
            let mut bad = ptr::null_mut();
            check(ibv_post_recv(self.qp, &raw mut request, &raw mut bad))
        }
    }

    /// Posts a work request on the send queue.
    pub fn post(&self, request: &Request) -> io::Result<()> {
        let mut sge = self.sge(request.offset, request.length);
        let (remote_addr, rkey) = request.remote;
        // SAFETY: as for RECV; of the union the member that the opcode reads is written.
        unsafe {
            let mut wr: ibv_send_wr = std::mem::zeroed();
            wr.wr_id = request.id;
            wr.sg_list = &raw mut sge;
            wr.num_sge = 1;
            wr.opcode = request.opcode;
            wr.send_flags = if request.signaled {
                ibv_send_flags::IBV_SEND_SIGNALED.0
            } else {
                0
            };
            if request.opcode == ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD {
                wr.wr.atomic = atomic_t {
                    remote_addr,
                    compare_add: request.add,
                    swap: 0,
                    rkey,
                };
            } else {
                wr.wr.rdma = rdma_t { remote_addr, rkey };
            }
            let mut bad = ptr::null_mut();
            check(ibv_post_send(self.qp, &raw mut wr, &raw mut bad))
        }
    }

    fn sge(&self, offset: usize, length: u32) -> ibv_sge {
        let end = offset.checked_add(length as usize);
        assert!(
            end.is_some_and(|end| end <= self.words * 8),
            "{offset} + {length} is outside the buffer"
        );
        // SAFETY: the MR is alive.
        let lkey = unsafe { (*self.mr).lkey };
        ibv_sge {
            addr: self.card.va + offset as u64,
            length,
            lkey,
        }
    }

    /// Waits, spinning, for the next completion; one that is not a success is an error.
    pub fn completion(&self) -> io::Result<Completion> {
        loop {
            // SAFETY: a zeroed ibv_wc is valid, and the CQ is alive.
            let (count, wc) = unsafe {
                let mut wc: ibv_wc = std::mem::zeroed();
                (ibv_poll_cq(self.cq, 1, &raw mut wc), wc)
            };
            match count {
                0 => std::hint::spin_loop(),
                1 if wc.status == ibv_wc_status::IBV_WC_SUCCESS => {
                    return Ok(Completion {
                        id: wc.wr_id,
                        bytes: wc.byte_len,
                    });
                }
                1 => {
                    return Err(io::Error::other(format!(
                        "work request {}: {}",
                        wc.wr_id,
                        status_text(wc.status)
                    )));
                }
                _ => return Err(io::Error::other("polling the CQ failed")),
            }
        }
    }

    /// A word of the buffer, which the NIC may be writing.
    pub fn load(&self, word: usize) -> u64 {
        assert!(word < self.words);
        // SAFETY: inside the buffer; volatile because the NIC writes behind the compiler's back.
        unsafe { self.memory.add(word).read_volatile() }
    }

    /// Writes a word of the buffer.
    pub fn store(&self, word: usize, value: u64) {
        assert!(word < self.words);
        // SAFETY: as for `load`.
        unsafe { self.memory.add(word).write_volatile(value) }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // SAFETY: made in `open` in the opposite order; nothing uses them after this, and the buffer is freed when its
        // registration is gone.
        unsafe {
            ibv_destroy_qp(self.qp);
            ibv_dereg_mr(self.mr);
            ibv_destroy_cq(self.cq);
            ibv_dealloc_pd(self.pd);
            ibv_close_device(self.context);
            drop(Box::from_raw(ptr::slice_from_raw_parts_mut(self.memory, self.words)));
        }
    }
}

/// Connects the two processes over TCP: the server waits on `port`, the client comes to `host`.
pub fn meet(role: Role, host: &str, port: u16) -> io::Result<TcpStream> {
    match role {
        Role::Server => Ok(TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?.accept()?.0),
        Role::Client => TcpStream::connect((host, port)),
    }
}

/// Tells the peer our card and reads its own.
pub fn swap(stream: &TcpStream, card: &Card) -> io::Result<Card> {
    say(
        stream,
        &format!("{} {} {} {} {}", card.qpn, card.psn, card.va, card.rkey, card.gid),
    )?;
    let line = hear(stream)?;
    let words: Vec<u128> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [qpn, psn, va, rkey, gid] = words[..] else {
        return Err(io::Error::other(format!("the peer says '{line}'")));
    };
    let narrow = |word: u128| u32::try_from(word).map_err(io::Error::other);
    let va = u64::try_from(va).map_err(io::Error::other)?;
    Ok(Card {
        qpn: narrow(qpn)?,
        psn: narrow(psn)?,
        va,
        rkey: narrow(rkey)?,
        gid,
    })
}

/// Sends a line.
pub fn say(mut stream: &TcpStream, line: &str) -> io::Result<()> {
    stream.write_all(format!("{line}\n").as_bytes())
}

/// Waits for a line; a byte at a time, because the next line may be there already and is for the next call.
pub fn hear(mut stream: &TcpStream) -> io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte)?;
        match byte {
            [b'\n'] => return String::from_utf8(line).map_err(io::Error::other),
            [other] => line.push(other),
        }
    }
}

fn open_device(name: Option<&str>) -> io::Result<*mut ibv_context> {
    let mut count = 0;
    // SAFETY: the list holds `count` devices and is freed after the last use; names are C strings inside the devices.
    unsafe {
        let list = made(ibv_get_device_list(&raw mut count))?;
        let devices = std::slice::from_raw_parts(list, usize::try_from(count).unwrap_or_default());
        let wanted = devices.iter().copied().find(|device| {
            name.is_none_or(|name| CStr::from_ptr(ibv_get_device_name(*device)).to_bytes() == name.as_bytes())
        });
        let context = match wanted {
            Some(device) => made(ibv_open_device(device)),
            None => Err(io::Error::new(
                io::ErrorKind::NotFound,
                "no such device; start it with `adverb run --`",
            )),
        };
        ibv_free_device_list(list);
        context
    }
}

fn access() -> u32 {
    ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0
        | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0
        | ibv_access_flags::IBV_ACCESS_REMOTE_READ.0
        | ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0
}

fn status_text(status: ibv_wc_status::Type) -> String {
    // SAFETY: returns a static string for every value.
    unsafe { CStr::from_ptr(ibv_wc_status_str(status)) }
        .to_string_lossy()
        .into_owned()
}

/// Verbs that make objects return null and set errno.
fn made<T>(pointer: *mut T) -> io::Result<*mut T> {
    if pointer.is_null() {
        Err(io::Error::last_os_error())
    } else {
        Ok(pointer)
    }
}

/// Most others return the error number, or −1 and set errno.
fn check(status: i32) -> io::Result<()> {
    match status {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Flags and depths as the C signatures want them.
fn signed(value: u32) -> i32 {
    i32::try_from(value).expect("a small number")
}
