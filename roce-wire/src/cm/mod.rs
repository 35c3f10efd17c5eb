//! Communication management messages, one file each (InfiniBand specification, 12.6).
//!
//! A message is the 232-byte body of a MAD of class 7. [`Message::parse`] tells them apart by attribute;
//! [`Message::emit`] writes header and body. Reserved fields are written as zero and ignored on receipt, every other
//! bit survives a round trip. What the messages mean for a connection is for the connection manager to say.

mod apr;
mod codes;
mod drep;
mod dreq;
pub mod ip;
mod lap;
mod mra;
mod path;
mod rej;
mod rep;
mod req;
mod rtu;
mod sidr_rep;
mod sidr_req;

pub use apr::Apr;
pub use codes::{MessageKind, RejReason, SidrStatus};
pub use drep::Drep;
pub use dreq::Dreq;
pub use lap::Lap;
pub use mra::Mra;
pub use path::CmPath;
pub use rej::Rej;
pub use rep::Rep;
pub use req::{Req, Transport};
pub use rtu::Rtu;
pub use sidr_rep::SidrRep;
pub use sidr_req::SidrReq;

use crate::mad::{CLASS_CM, CLASS_CM_VERSION, MAD_LEN, METHOD_SEND, MadHeader};
use thiserror::Error;

/// Bytes of a message without its MAD header.
pub const BODY_LEN: usize = MAD_LEN - MadHeader::LEN;
/// A message without its MAD header.
pub type Body = [u8; BODY_LEN];

/// Why a MAD is no CM message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MadError {
    /// Not 256 bytes.
    #[error("MAD of {0} bytes")]
    WrongLength(usize),
    /// Of another class, method or format version.
    #[error("MAD of class {class:#04x}, method {method:#04x} is no CM message")]
    NotCm {
        /// Management class.
        class: u8,
        /// Method.
        method: u8,
    },
    /// Of another version of the class.
    #[error("CM class version {0} is not spoken")]
    ClassVersion(u8),
    /// Of an attribute that is no message.
    #[error("CM attribute {0:#06x} is no message")]
    UnknownAttribute(u16),
}

macro_rules! messages {
    ($($name:ident = $attribute:literal, $doc:literal;)*) => {
        /// A CM message. Boxed: they fill a MAD, and are rare.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Message {
            $(#[doc = $doc] $name(Box<$name>),)*
        }

        impl Message {
            /// Attribute id on the wire.
            pub const fn attribute(&self) -> u16 {
                match self {
                    $(Self::$name(_) => $attribute,)*
                }
            }

            fn parse_body(attribute: u16, body: &Body) -> Option<Self> {
                match attribute {
                    $($attribute => Some(Self::$name(Box::new($name::parse(body)))),)*
                    _ => None,
                }
            }

            fn emit_body(&self, body: &mut Body) {
                match self {
                    $(Self::$name(message) => message.emit(body),)*
                }
            }
        }

        $(impl From<$name> for Message {
            fn from(message: $name) -> Self {
                Self::$name(Box::new(message))
            }
        })*
    };
}

messages! {
    Req = 0x10, "Request for communication.";
    Mra = 0x11, "Message receipt acknowledgement.";
    Rej = 0x12, "Reject.";
    Rep = 0x13, "Reply.";
    Rtu = 0x14, "Ready to use.";
    Dreq = 0x15, "Disconnect request.";
    Drep = 0x16, "Disconnect reply.";
    SidrReq = 0x17, "Service id resolution request.";
    SidrRep = 0x18, "Service id resolution reply.";
    Lap = 0x19, "Load alternate path.";
    Apr = 0x1a, "Alternate path response.";
}

/// What a message is addressed to at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Destination {
    /// A listener, by service id.
    Service(u64),
    /// A connection, by the receiver's communication id.
    Connection(u32),
    /// A service id resolution, by the receiver's request id.
    Resolution(u32),
}

impl Message {
    /// Parse a MAD.
    pub fn parse(mad: &[u8]) -> Result<(MadHeader, Self), MadError> {
        let wrong_length = MadError::WrongLength(mad.len());
        let mad: &[u8; MAD_LEN] = mad.try_into().map_err(|_| wrong_length)?;
        let header = MadHeader::parse(mad).ok_or(wrong_length)?;
        if header.base_version != 1 || header.mgmt_class != CLASS_CM || header.method != METHOD_SEND {
            return Err(MadError::NotCm {
                class: header.mgmt_class,
                method: header.method,
            });
        }
        if header.class_version != CLASS_CM_VERSION {
            return Err(MadError::ClassVersion(header.class_version));
        }
        let body = mad.last_chunk().ok_or(wrong_length)?;
        let message = Self::parse_body(header.attr_id, body).ok_or(MadError::UnknownAttribute(header.attr_id))?;
        Ok((header, message))
    }

    /// The message as a MAD: `header` with the message's attribute, and the body.
    pub fn emit(&self, header: &MadHeader) -> [u8; MAD_LEN] {
        let mut mad = [0; MAD_LEN];
        MadHeader {
            attr_id: self.attribute(),
            ..*header
        }
        .emit(&mut mad);
        if let Some(body) = mad.last_chunk_mut() {
            self.emit_body(body);
        }
        mad
    }

    /// What it is addressed to at its receiver.
    pub fn destination(&self) -> Destination {
        match self {
            Self::Req(req) => Destination::Service(req.service_id),
            Self::SidrReq(req) => Destination::Service(req.service_id),
            Self::SidrRep(rep) => Destination::Resolution(rep.request_id),
            Self::Mra(mra) => Destination::Connection(mra.remote_comm_id),
            Self::Rej(rej) => Destination::Connection(rej.remote_comm_id),
            Self::Rep(rep) => Destination::Connection(rep.remote_comm_id),
            Self::Rtu(rtu) => Destination::Connection(rtu.remote_comm_id),
            Self::Dreq(dreq) => Destination::Connection(dreq.remote_comm_id),
            Self::Drep(drep) => Destination::Connection(drep.remote_comm_id),
            Self::Lap(lap) => Destination::Connection(lap.remote_comm_id),
            Self::Apr(apr) => Destination::Connection(apr.remote_comm_id),
        }
    }
}

/// Private data of a message's fixed length: `data`, then zeros. `None` when it is too long.
pub fn private_data<const N: usize>(data: &[u8]) -> Option<[u8; N]> {
    let mut padded = [0; N];
    padded.get_mut(..data.len())?.copy_from_slice(data);
    Some(padded)
}
