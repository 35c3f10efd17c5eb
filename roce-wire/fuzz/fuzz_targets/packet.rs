//! Any packet that parses is emitted at its own length and parses to the same.
#![no_main]

use roce_wire::packet::Packet;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(packet) = Packet::parse(bytes) {
        let mut emitted = vec![0; bytes.len()];
        assert_eq!(packet.emit(&mut emitted), bytes.len());
        assert_eq!(Packet::parse(&emitted), Ok(packet));
    }
});
