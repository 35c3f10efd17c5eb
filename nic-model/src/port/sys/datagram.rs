//! Sending and receiving datagrams, many at a time.

use std::fmt;
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use super::encoding::{ADDRESS_LEN, CONTROL_LEN, Control, RawAddress, SendOptions};
use super::{checked, socklen};
use crate::frame::MAX_BATCH_SEGMENTS;

/// Bytes of the largest datagram or coalesced train of datagrams.
const MAX_DATAGRAM: usize = 65_536;
/// An empty part of a message.
const NO_IOV: libc::iovec = libc::iovec {
    iov_base: ptr::null_mut(),
    iov_len: 0,
};

fn message_header(
    name: *mut RawAddress,
    name_len: libc::socklen_t,
    iov: *mut libc::iovec,
    control: *mut Control,
    control_len: usize,
) -> libc::msghdr {
    // SAFETY: msghdr is plain data, for which all zeros is a value (it may have private padding).
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_name = name.cast();
    header.msg_namelen = name_len;
    header.msg_iov = iov;
    header.msg_iovlen = 1;
    if control_len > 0 {
        header.msg_control = control.cast();
        header.msg_controllen = control_len;
    }
    header
}

/// Send `bytes` to `to`, as one datagram or, with `options.segment_size`, as a train of datagrams.
pub fn send(fd: BorrowedFd<'_>, to: &SocketAddr, bytes: &[u8], options: &SendOptions) -> io::Result<usize> {
    let mut name = RawAddress::encode(to);
    let mut control = options.encode(to.is_ipv6());
    let mut iov = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let (name_len, control_len) = (name.len, control.len);
    let header = message_header(&mut name, name_len, &mut iov, &mut control, control_len);
    // SAFETY: name, iov, control and bytes outlive the call, each with its own length; sendmsg only reads them. Both
    // structures begin with their byte array (repr(C)), so a pointer to one is a pointer to its bytes.
    checked(unsafe { libc::sendmsg(fd.as_raw_fd(), &header, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) })
}

/// Send `bytes` to `to` as separate datagrams of `segment_size`, the last perhaps shorter. Returns how many the kernel
/// took, at least one; `options.segment_size` must be `None`.
pub fn send_each(
    fd: BorrowedFd<'_>,
    to: &SocketAddr,
    bytes: &[u8],
    segment_size: usize,
    options: &SendOptions,
) -> io::Result<usize> {
    let mut name = RawAddress::encode(to);
    let mut control = options.encode(to.is_ipv6());
    let (name_len, control_len) = (name.len, control.len);
    let (name, control) = (&raw mut name, &raw mut control);
    let mut iovs = [NO_IOV; MAX_BATCH_SEGMENTS];
    // SAFETY: mmsghdr is plain data, for which all zeros is a value.
    let mut headers: [libc::mmsghdr; MAX_BATCH_SEGMENTS] = unsafe { mem::zeroed() };
    let mut count = 0;
    for ((segment, iov), header) in bytes.chunks(segment_size.max(1)).zip(&mut iovs).zip(&mut headers) {
        *iov = libc::iovec {
            iov_base: segment.as_ptr().cast_mut().cast(),
            iov_len: segment.len(),
        };
        header.msg_hdr = message_header(name, name_len, iov, control, control_len);
        count += 1;
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the first `count` headers are filled in; name, control, iovs and bytes outlive the call, which only reads
    // them and writes msg_len of the headers.
    checked(unsafe { libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), count, flags as _) })
}

/// A received datagram, or a coalesced train of datagrams of one sender.
#[derive(Clone, Copy, Debug)]
pub struct Datagrams<'a> {
    /// The payloads, back to back.
    pub bytes: &'a [u8],
    /// Length of every datagram but the last.
    pub segment_size: usize,
    /// Who sent it.
    pub from: SocketAddr,
    /// Address it was sent to, if the kernel says.
    pub to: Option<IpAddr>,
    /// IPv4 TOS or IPv6 traffic class.
    pub traffic_class: u8,
    /// IPv4 TTL or IPv6 hop limit.
    pub hop_limit: u8,
}

/// Buffers for receiving, allocated once.
pub struct Receiver {
    buffers: Vec<u8>,
    names: [RawAddress; Self::SLOTS],
    controls: [Control; Self::SLOTS],
    lengths: [usize; Self::SLOTS],
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}

impl Default for Receiver {
    fn default() -> Self {
        Self {
            buffers: vec![0; Self::SLOTS * MAX_DATAGRAM],
            names: [RawAddress::EMPTY; Self::SLOTS],
            controls: [Control::EMPTY; Self::SLOTS],
            lengths: [0; Self::SLOTS],
        }
    }
}

impl Receiver {
    /// Most datagrams or trains one call takes: bounded, so that a turn ends, and few, so that they stay in the cache.
    /// Measured over loopback, more slots gain nothing, neither for trains nor for single datagrams.
    pub const SLOTS: usize = 4;

    /// Take datagrams or trains that are waiting, up to [`SLOTS`](Self::SLOTS). Returns their number, at least one.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is waiting.
    pub fn receive(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let mut iovs = [NO_IOV; Self::SLOTS];
        // SAFETY: mmsghdr is plain data, for which all zeros is a value.
        let mut headers: [libc::mmsghdr; Self::SLOTS] = unsafe { mem::zeroed() };
        let slots = self
            .buffers
            .chunks_exact_mut(MAX_DATAGRAM)
            .zip(&mut self.names)
            .zip(&mut self.controls);
        for (((buffer, name), control), (iov, header)) in slots.zip(iovs.iter_mut().zip(&mut headers)) {
            *iov = libc::iovec {
                iov_base: buffer.as_mut_ptr().cast(),
                iov_len: MAX_DATAGRAM,
            };
            header.msg_hdr = message_header(name, socklen(ADDRESS_LEN), iov, control, CONTROL_LEN);
        }
        let (messages, count) = (headers.as_mut_ptr(), libc::c_uint::try_from(Self::SLOTS).unwrap_or(1));
        // SAFETY: all SLOTS headers are filled in with pointers into iovs and into buffers, names and controls of self,
        // which is borrowed mutably for the call; each comes with the length of its own part (name and control begin
        // with their byte arrays, repr(C)), beyond which the kernel does not write.
        let received = checked(unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                messages,
                count,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        })?;
        for (i, header) in headers.iter().take(received).enumerate() {
            self.lengths[i] = usize::try_from(header.msg_len).unwrap_or(0).min(MAX_DATAGRAM);
            self.controls[i].len = header.msg_hdr.msg_controllen;
        }
        Ok(received)
    }

    /// The datagram or train that the last [`receive`](Self::receive) put in `slot`; `None` if it came from no IP
    /// address or is empty.
    pub fn datagrams(&self, slot: usize) -> Option<Datagrams<'_>> {
        let bytes = self
            .buffers
            .get(slot * MAX_DATAGRAM..)?
            .get(..*self.lengths.get(slot)?)?;
        let from = self.names[slot].decode()?;
        let mut datagrams = Datagrams {
            bytes,
            segment_size: bytes.len(),
            from,
            to: None,
            traffic_class: 0,
            hop_limit: 0,
        };
        for (level, kind, data) in self.controls[slot].iter() {
            match (level, kind) {
                (libc::SOL_UDP, libc::UDP_GRO) => datagrams.segment_size = int(data, datagrams.segment_size),
                // IPv4 gives the TOS as one byte, IPv6 the traffic class as an int.
                (libc::IPPROTO_IP, libc::IP_TOS) => datagrams.traffic_class = data.first().copied().unwrap_or(0),
                (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                    datagrams.hop_limit = int(data, 0);
                }
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => datagrams.traffic_class = int(data, 0),
                // in_pktinfo: interface, local address, destination address of the header.
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let octets = data.get(8..12).and_then(|b| <[u8; 4]>::try_from(b).ok());
                    datagrams.to = octets.map(|octets| Ipv4Addr::from(octets).into());
                }
                // in6_pktinfo: destination address, interface.
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let octets = data.get(..16).and_then(|b| <[u8; 16]>::try_from(b).ok());
                    datagrams.to = octets.map(|octets| Ipv6Addr::from(octets).into());
                }
                _ => {}
            }
        }
        (!bytes.is_empty()).then_some(datagrams)
    }
}

/// A control message's int, or `default` where it is none or out of range.
fn int<T: TryFrom<i32>>(data: &[u8], default: T) -> T {
    let value = data.first_chunk::<4>().map(|bytes| i32::from_ne_bytes(*bytes));
    value.and_then(|value| T::try_from(value).ok()).unwrap_or(default)
}
