//! MADs coming in.

use core::net::IpAddr;

use nic_model::time::Time;
use roce_wire::cm::{Message, MessageKind, Rej, RejReason};
use roce_wire::mad::MadHeader;

use super::{Core, Mad};

/// What became of a MAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Dealt with, or dropped.
    Taken,
    /// A request for a port nobody in this process listens on. Another process may: the caller hands it over, or says
    /// [`Core::refuse`].
    NoListener {
        /// Port space.
        space: u16,
        /// Address asked for.
        to: IpAddr,
        /// Port asked for.
        port: u16,
    },
}

impl Mad {
    /// The MAD that carries `message` back to where this one came from.
    pub(super) fn answer(&self, tid: u64, message: &Message) -> Self {
        Self {
            bytes: message.emit(&MadHeader::cm(tid)),
            ..self.clone()
        }
    }
}

impl Core {
    /// A MAD arrived.
    pub fn receive(&mut self, now: Time, mad: &Mad) -> Received {
        self.now = now;
        let Ok((header, message)) = Message::parse(&mad.bytes) else {
            return Received::Taken;
        };
        match &message {
            Message::Req(req) => return self.receive_req(mad, &header, req),
            Message::SidrReq(req) => return self.receive_sidr_req(mad, &header, req),
            Message::Rep(rep) => {
                if self.connections.contains(rep.remote_comm_id) {
                    self.receive_rep(rep, header.attr_mod);
                } else {
                    // The peer would otherwise repeat it for a connection nobody has.
                    let rej = Rej {
                        local_comm_id: rep.remote_comm_id,
                        remote_comm_id: rep.local_comm_id,
                        message: MessageKind::Rep,
                        info_len: 0,
                        reason: RejReason::InvalidCommId,
                        info: [0; 72],
                        private_data: [0; 148],
                    };
                    self.outbox.push_back(mad.answer(header.tid, &rej.into()));
                }
            }
            Message::Rtu(rtu) => self.receive_rtu(rtu),
            Message::Rej(rej) => self.receive_rej(rej),
            Message::Mra(mra) => self.receive_mra(mra),
            Message::Dreq(dreq) => self.receive_dreq(mad, &header, dreq),
            Message::Drep(drep) => self.receive_drep(drep),
            Message::SidrRep(rep) => self.receive_sidr_rep(rep),
            // Path migration is not offered; peers do not ask for it over RoCE.
            Message::Lap(_) | Message::Apr(_) => {}
        }
        Received::Taken
    }

    /// Refuse a request that [`Self::receive`] found no listener for, anywhere.
    pub fn refuse(&mut self, now: Time, mad: &Mad) {
        self.now = now;
        match Message::parse(&mad.bytes) {
            Ok((header, Message::Req(req))) => {
                self.refuse_request(mad, &header, &req, RejReason::InvalidServiceId);
            }
            Ok((header, Message::SidrReq(req))) => self.refuse_service_request(mad, &header, &req),
            _ => {}
        }
    }
}
