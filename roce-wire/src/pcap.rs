//! Captures of RoCEv2 packets that Wireshark and tcpdump read, written by the `pcap-file` crate.
//!
//! A port sees UDP payloads; Ethernet, IP and UDP headers are put back from the addresses ([`crate::net`]), with the IP
//! identification each packet is sealed for, so that its ICRC verifies. Time stamps are in nanoseconds. The classic
//! format has no comments.

use crate::ROCE_V2_PORT;
use crate::net::{Datagram, IpFields, emit_frame};
use core::net::IpAddr;
use core::time::Duration;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};
use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Longest frame kept; above what IP allows.
const SNAP_LEN: u32 = 1 << 18;
/// Time stamps are in 10⁻⁹ seconds.
const NANOSECONDS: u8 = 9;

/// A capture file being written.
///
/// Packets are buffered; [`Capture::flush`] or dropping it writes them out.
pub struct Capture {
    format: Format,
    file: Buffered,
    frame: Vec<u8>,
}

enum Format {
    Classic(PcapWriter<Buffered>),
    Next(PcapNgWriter<Buffered>),
}

/// The file, shared with the format's writer, which does not let go of what it writes to.
#[derive(Clone, Debug)]
struct Buffered(Arc<Mutex<BufWriter<File>>>);

impl Write for Buffered {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).flush()
    }
}

impl Capture {
    /// Create `path`: the classic format when its name ends in `.pcap`, else pcapng. An older file is replaced.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = Buffered(Arc::new(Mutex::new(BufWriter::new(File::create(path)?))));
        let classic = path
            .extension()
            .is_some_and(|extension| extension.eq_ignore_ascii_case("pcap"));
        let format = if classic {
            let header = PcapHeader {
                snaplen: SNAP_LEN,
                datalink: DataLink::ETHERNET,
                ts_resolution: TsResolution::NanoSecond,
                endianness: Endianness::Little,
                ..PcapHeader::default()
            };
            Format::Classic(PcapWriter::with_header(file.clone(), header).map_err(into_io)?)
        } else {
            let mut writer = PcapNgWriter::with_endianness(file.clone(), Endianness::Little).map_err(into_io)?;
            let mut interface = InterfaceDescriptionBlock::new(DataLink::ETHERNET, SNAP_LEN);
            interface
                .options
                .push(InterfaceDescriptionOption::IfTsResol(NANOSECONDS));
            writer.write_pcapng_block(interface).map_err(into_io)?;
            Format::Next(writer)
        };
        Ok(Self {
            format,
            file,
            frame: Vec::new(),
        })
    }

    /// Add a RoCEv2 packet, `udp_payload`, sent from `src`:`sport` to `dst`:4791 at `timestamp_ns` since 1970.
    #[expect(
        clippy::too_many_arguments,
        reason = "one per header field; a struct would be filled in the same order"
    )]
    pub fn packet(
        &mut self,
        timestamp_ns: u64,
        src: IpAddr,
        dst: IpAddr,
        sport: u16,
        tos: u8,
        ttl: u8,
        ip_id: u16,
        udp_payload: &[u8],
        comment: Option<&str>,
    ) -> io::Result<()> {
        let ip = IpFields {
            src,
            dst,
            traffic_class: tos,
            hop_limit: ttl,
            flow_label: 0,
            id: ip_id,
        };
        self.frame.clear();
        emit_frame(
            &Datagram {
                ip,
                sport,
                dport: ROCE_V2_PORT,
            },
            udp_payload,
            &mut self.frame,
        );
        let original_len = u32::try_from(self.frame.len()).unwrap_or(u32::MAX);
        let timestamp = Duration::from_nanos(timestamp_ns);
        let written = match &mut self.format {
            Format::Classic(writer) => writer.write_packet(&PcapPacket::new(timestamp, original_len, &self.frame)),
            Format::Next(writer) => writer.write_pcapng_block(EnhancedPacketBlock {
                interface_id: 0,
                timestamp,
                original_len,
                data: Cow::Borrowed(&self.frame),
                options: comment
                    .into_iter()
                    .map(|text| EnhancedPacketOption::Comment(text.into()))
                    .collect(),
            }),
        };
        written.map(drop).map_err(into_io)
    }

    /// Write out what is buffered.
    pub fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

fn into_io(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}
