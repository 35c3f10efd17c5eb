//! Code points of CM messages: what was rejected, why, and outcomes of service id resolution
//! (InfiniBand specification, 12.6 and 12.11).

/// Which message an MRA or REJ is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageKind {
    /// A REQ.
    Req,
    /// A REP.
    Rep,
    /// Neither; in an MRA, a LAP.
    Other,
    /// Reserved.
    Reserved,
}

impl MessageKind {
    pub(super) const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Req,
            1 => Self::Rep,
            2 => Self::Other,
            _ => Self::Reserved,
        }
    }

    pub(super) const fn to_bits(self) -> u8 {
        match self {
            Self::Req => 0,
            Self::Rep => 1,
            Self::Other => 2,
            Self::Reserved => 3,
        }
    }
}

macro_rules! codes {
    ($(#[$meta:meta])* $name:ident: $int:ident, $from:ident, $to:ident { $($variant:ident = $value:literal, $doc:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $(#[doc = $doc] $variant,)*
            /// Any other code.
            Other($int),
        }

        impl $name {
            /// From its code.
            pub const fn $from(code: $int) -> Self {
                match code {
                    $($value => Self::$variant,)*
                    _ => Self::Other(code),
                }
            }

            /// As its code.
            pub const fn $to(self) -> $int {
                match self {
                    $(Self::$variant => $value,)*
                    Self::Other(code) => code,
                }
            }
        }
    };
}

codes! {
    /// Why a REJ was sent.
    RejReason: u16, from_u16, to_u16 {
        NoQp = 1, "No QP is available.";
        NoEec = 2, "No end-to-end context is available.";
        NoResources = 3, "Other resources are exhausted.";
        Timeout = 4, "The peer did not answer in time.";
        Unsupported = 5, "The request is not supported.";
        InvalidCommId = 6, "The communication id is unknown.";
        InvalidCommInstance = 7, "Ids and GUID do not belong together.";
        InvalidServiceId = 8, "Nobody listens on this service id.";
        InvalidTransportType = 9, "The listener is of another transport service.";
        StaleConnection = 10, "The QPN belongs to a connection that the receiver believes alive.";
        RdcNotExist = 11, "There is no reliable-datagram channel.";
        InvalidGid = 12, "The primary path's GID is not the receiver's.";
        InvalidLid = 13, "The primary path's LID is not the receiver's.";
        InvalidSl = 14, "The primary path's service level is refused.";
        InvalidTrafficClass = 15, "The primary path's traffic class is refused.";
        InvalidHopLimit = 16, "The primary path's hop limit is refused.";
        InvalidPacketRate = 17, "The primary path's rate is refused.";
        InvalidAltGid = 18, "The alternate path's GID is not the receiver's.";
        InvalidAltLid = 19, "The alternate path's LID is not the receiver's.";
        InvalidAltSl = 20, "The alternate path's service level is refused.";
        InvalidAltTrafficClass = 21, "The alternate path's traffic class is refused.";
        InvalidAltHopLimit = 22, "The alternate path's hop limit is refused.";
        InvalidAltPacketRate = 23, "The alternate path's rate is refused.";
        PortCmRedirect = 24, "Ask the connection manager at another port.";
        PortRedirect = 25, "Use another port.";
        InvalidMtu = 26, "The path MTU is refused.";
        InsufficientResponderResources = 27, "Too few READs and atomics can be served.";
        ConsumerDefined = 28, "The consumer refused; its reason is in the private data.";
        InvalidRnrRetry = 29, "The RNR retry count is refused.";
        DuplicateLocalCommId = 30, "The sender's communication id is in use.";
        InvalidClassVersion = 31, "The class version is not supported.";
        InvalidFlowLabel = 32, "The primary path's flow label is refused.";
        InvalidAltFlowLabel = 33, "The alternate path's flow label is refused.";
        VendorOptionNotSupported = 35, "The options of enhanced connection establishment are refused.";
    }
}

codes! {
    /// Outcome of a service id resolution.
    SidrStatus: u8, from_u8, to_u8 {
        Success = 0, "QPN and queue key are valid.";
        Unsupported = 1, "Nobody listens on this service id.";
        Rejected = 2, "The service provider refused.";
        NoQp = 3, "No QP is available.";
        Redirect = 4, "Ask elsewhere.";
        UnsupportedVersion = 5, "The class version is not supported.";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_round_trips() {
        for code in 0..=u8::MAX {
            assert_eq!(RejReason::from_u16(u16::from(code)).to_u16(), u16::from(code));
            assert_eq!(SidrStatus::from_u8(code).to_u8(), code);
        }
        for bits in 0..4 {
            assert_eq!(MessageKind::from_bits(bits).to_bits(), bits);
        }
        assert_eq!(RejReason::from_u16(28), RejReason::ConsumerDefined);
    }
}
