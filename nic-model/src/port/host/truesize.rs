//! What the kernel charges to a UDP socket's receive buffer for what was sent to it on the same host.
//!
//! Measured with SO_MEMINFO over loopback on Linux 6.18, receiver with UDP_GRO; the charge (truesize) of
//!
//! | sent                                      | bytes  | charged |
//! |-------------------------------------------|--------|---------|
//! | one datagram of 80 bytes                  | 80     | 832     |
//! | one datagram of 1,072 bytes               | 1,072  | 2,304   |
//! | one datagram of 4,116 bytes               | 4,116  | 8,448   |
//! | one UDP_SEGMENT send, segments of 1,072   | 65,000 | 65,832  |
//! | the same, receiver without UDP_GRO        | 61,104 | 108,528 |
//!
//! A datagram lies in one allocation, rounded up to a power of two; a segmented send lies in pages charged as used. Of
//! what has been read the kernel keeps up to a quarter of the buffer charged (`forward_deficit` in net/ipv4/udp.c).
//! The estimates here are upper bounds; sender and receiver use the same, so that their sums agree.

/// `sk_buff` and `skb_shared_info` beside the data of a segmented send, with room for kernels with larger ones.
const SEGMENTED_OVERHEAD: usize = 1024;
/// Headers, headroom and `skb_shared_info` in the allocation of a datagram.
const LINEAR_OVERHEAD: usize = 432;
/// `struct sk_buff`.
const SKB: usize = 256;
/// The kernel's cache of small heads.
const SMALL_HEAD: usize = 576;

/// Charge for one datagram of `len` bytes.
pub const fn of_datagram(len: usize) -> usize {
    let linear = len.saturating_add(LINEAR_OVERHEAD);
    if linear <= SMALL_HEAD {
        SMALL_HEAD + SKB
    } else if linear <= 16_384 {
        linear.next_power_of_two() + SKB
    } else {
        len.saturating_add(SEGMENTED_OVERHEAD)
    }
}

/// Charge for `total` bytes in packets of `segment_size`: together if `segmented` (UDP_SEGMENT at the sender and UDP_GRO
/// at the receiver), else datagram by datagram.
pub const fn of_batch(segment_size: usize, total: usize, segmented: bool) -> usize {
    if total <= segment_size || segment_size == 0 {
        of_datagram(total)
    } else if segmented {
        total.saturating_add(SEGMENTED_OVERHEAD)
    } else {
        total.div_ceil(segment_size).saturating_mul(of_datagram(segment_size))
    }
}

/// Bytes of payload that certainly fit a charge of `room`, sent as one batch, or as one packet of up to 4,200 bytes.
pub const fn payload_within(room: usize, segmented: bool) -> usize {
    const LARGEST_SINGLE: usize = of_datagram(4200);
    if !segmented {
        // Packets of 1 KiB and more take at most twice their length and a bit; smaller ones overshoot by one batch.
        room.saturating_sub(2 * SEGMENTED_OVERHEAD) / 4
    } else if room >= LARGEST_SINGLE + SEGMENTED_OVERHEAD {
        room - SEGMENTED_OVERHEAD
    } else {
        room.saturating_sub(2 * LINEAR_OVERHEAD + SKB) / 2
    }
}

/// How much of a receive buffer of `rcvbuf` (as getsockopt returns it) cooperating senders may fill: a quarter may be
/// charged for what has been read already, a sixteenth is left to senders that do not count.
pub const fn usable(rcvbuf: usize) -> usize {
    rcvbuf - rcvbuf / 4 - rcvbuf / 16
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg, setsockopt, sockopt};

    use super::super::sys::socket_memory;
    use super::*;

    #[test]
    fn estimates_bound_what_this_kernel_charges() {
        let sender = UdpSocket::bind("127.73.0.1:0").unwrap();
        for (segment, total) in [
            (1, 1),
            (80, 80),
            (80, 5120),
            (280, 280),
            (600, 600),
            (1072, 1072),
            (1072, 2144),
            (1072, 61_104),
            (2000, 2000),
            (3700, 3700),
            (4116, 4116),
            (4116, 8232),
            (4116, 61_740),
        ] {
            let receiver = UdpSocket::bind("127.73.0.1:0").unwrap();
            setsockopt(&receiver, sockopt::UdpGroSegment, &true).unwrap();
            let to = SockaddrStorage::from(receiver.local_addr().unwrap());
            let bytes = vec![0; total];
            let size = u16::try_from(segment).unwrap();
            let control = [ControlMessage::UdpGsoSegments(&size)];
            let control = if total > segment { &control[..] } else { &[] };
            sendmsg(
                sender.as_raw_fd(),
                &[IoSlice::new(&bytes)],
                control,
                MsgFlags::empty(),
                Some(&to),
            )
            .unwrap();
            let charged = usize::try_from(socket_memory(receiver.as_raw_fd()).unwrap().rmem).unwrap();
            let estimate = of_batch(segment, total, true);
            assert!(
                charged > 0 && charged <= estimate,
                "{segment} {total}: {charged} > {estimate}"
            );
            assert!(
                estimate <= charged * 2 + 256,
                "{segment} {total}: {charged} estimated as {estimate}"
            );
        }
    }

    #[test]
    fn what_fits_is_within_the_room() {
        for room in 0..70_000 {
            let payload = payload_within(room, true);
            assert!(
                payload == 0 || of_datagram(payload.min(4200)) <= room,
                "single, room {room}"
            );
            assert!(
                payload == 0 || payload + SEGMENTED_OVERHEAD <= room,
                "batch, room {room}"
            );
        }
    }
}
