//! No MAD makes the parser panic, and what it accepts survives a round trip.
#![no_main]

use roce_wire::cm::Message;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok((header, message)) = Message::parse(bytes) {
        assert_eq!(Message::parse(&message.emit(&header)), Ok((header, message)));
    }
});
