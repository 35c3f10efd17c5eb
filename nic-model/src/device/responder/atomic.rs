//! Inbound atomics and their replay cache (IBTA 9.4.5, 9.7.5.1.5).

use super::super::dma;
use super::super::parts::Parts;
use super::super::qp::QpInfo;
use super::admit::{Executed, Refusal};
use super::{Responder, remote_nak};
use crate::host_if::qp_attr::Access;
use roce_wire::opcode::Kind;
use roce_wire::packet::Packet;
use roce_wire::psn::Psn;
use roce_wire::syndrome::NakCode;

/// Results kept: as many as a peer may have outstanding.
const REPLAYS: usize = 16;

/// Results of the latest atomics, so that a duplicate is answered and never executed again.
#[derive(Debug, Default)]
pub(super) struct ReplayCache {
    results: [Option<(Psn, u64, u32)>; REPLAYS],
    next: usize,
}

impl ReplayCache {
    fn save(&mut self, psn: Psn, orig: u64, msn: u32) {
        // Left from the last time PSNs went round.
        self.results
            .iter_mut()
            .filter(|saved| saved.is_some_and(|(of, ..)| of == psn))
            .for_each(|saved| *saved = None);
        self.results[self.next] = Some((psn, orig, msn));
        self.next = (self.next + 1) % REPLAYS;
    }

    fn find(&self, psn: Psn) -> Option<(u64, u32)> {
        self.results
            .iter()
            .flatten()
            .find(|(of, _, _)| *of == psn)
            .map(|(_, orig, msn)| (*orig, *msn))
    }
}

impl Responder {
    pub(super) fn on_atomic(
        &mut self,
        qp: &QpInfo,
        cx: &mut Parts,
        kind: Kind,
        packet: &Packet<'_>,
    ) -> Result<Executed, Refusal> {
        let operands = packet.headers.atomic.ok_or(Refusal::Request(NakCode::InvalidRequest))?;
        if !operands.va.is_multiple_of(8) || self.responses.outstanding() >= usize::from(qp.attr.max_dest_rd_atomic) {
            return Err(Refusal::Request(NakCode::InvalidRequest));
        }
        if !qp.attr.access.contains(Access::REMOTE_ATOMIC) {
            return Err(Refusal::Request(NakCode::RemoteAccess));
        }
        let range = cx
            .memory
            .remote(qp.pd, operands.rkey, operands.va, 8, Access::REMOTE_ATOMIC)
            .map_err(|refused| Refusal::Request(remote_nak(refused)))?;
        let orig = match kind {
            Kind::CmpSwap => dma::atomic(range, |old| (old == operands.compare).then_some(operands.swap_add)),
            _ => dma::atomic(range, |old| Some(old.wrapping_add(operands.swap_add))),
        };
        // The address is aligned for the peer but not for the process when the region's base is odd.
        let orig = orig.ok_or(Refusal::Request(NakCode::InvalidRequest))?;
        let psn = packet.headers.bth.psn;
        self.expected_psn = psn.next();
        self.bump_msn();
        self.replays.save(psn, orig, self.msn);
        self.responses.push_atomic(psn, orig, self.msn, false);
        self.list(qp, cx);
        Ok(Executed::Silently)
    }

    pub(super) fn on_duplicate_atomic(&mut self, qp: &QpInfo, cx: &mut Parts, psn: Psn) {
        let Some((orig, msn)) = self.replays.find(psn).filter(|_| self.responses.has_room()) else {
            return;
        };
        self.responses.push_atomic(psn, orig, msn, true);
        self.list(qp, cx);
    }
}
