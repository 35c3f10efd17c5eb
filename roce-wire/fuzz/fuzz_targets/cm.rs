//! Every body is a CM message and survives a round trip: the first byte picks the message.
#![no_main]
use roce_wire::cm::{BODY_LEN, Message, ip::IpPrefix};
use roce_wire::mad::MadHeader;

libfuzzer_sys::fuzz_target!(|input: (u8, [u8; BODY_LEN])| {
    let header = MadHeader {
        attr_id: 0x10 + u16::from(input.0 % 11),
        ..MadHeader::cm(7)
    };
    let (_, message) = Message::parse(&[&header.to_bytes()[..], &input.1].concat()).expect("every body is a message");
    assert_eq!(Message::parse(&message.emit(&header)), Ok((header, message)));
    let prefix = IpPrefix::parse(&input.1);
    assert_eq!(prefix.and_then(|prefix| IpPrefix::parse(&prefix.to_bytes())), prefix);
});
