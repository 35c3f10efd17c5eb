//! Packets of the captures in `tests/vectors`, taken from Linux Soft-RoCE.

use pcap_file::pcap::PcapReader;
use roce_wire::net::{Datagram, parse_frame};
use std::fs::File;
use std::path::{Path, PathBuf};

/// A captured packet.
pub(crate) struct Captured {
    /// Capture and packet number, for messages.
    pub(crate) name: String,
    /// Its IP and UDP headers.
    pub(crate) datagram: Datagram,
    /// Its UDP payload, ICRC included.
    pub(crate) packet: Vec<u8>,
}

/// Every packet of every capture, in the order of file names.
pub(crate) fn captured() -> Vec<Captured> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let entries = folder.read_dir().expect("folder of captures");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "pcap"));
    files.sort();
    files.iter().flat_map(|path| packets_of(path)).collect()
}

/// Every packet of the classic capture at `path`.
pub(crate) fn packets_of(path: &Path) -> Vec<Captured> {
    let mut reader = PcapReader::new(File::open(path).expect("capture")).expect("classic pcap");
    let mut packets = Vec::new();
    while let Some(frame) = reader.next_packet() {
        let frame = frame.expect("whole packet");
        let name = format!(
            "{}, packet {}",
            path.file_name().unwrap_or_default().to_string_lossy(),
            packets.len() + 1
        );
        let (datagram, packet) = parse_frame(&frame.data).unwrap_or_else(|| panic!("{name} is no UDP datagram"));
        packets.push(Captured {
            name,
            datagram,
            packet: packet.to_vec(),
        });
    }
    packets
}
