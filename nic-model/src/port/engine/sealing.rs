//! ICRC of whole batches, and the contexts it needs, kept per path.

use crate::frame::{RxMeta, TxBatch};
use crate::port::{Port, ROCE_PORT};
use roce_wire::icrc::{BadIcrc, IcrcContext};
use std::net::IpAddr;

type Key = (IpAddr, IpAddr, u16);

/// ICRC contexts of the paths used last, one for each direction.
#[derive(Debug, Default)]
pub(super) struct Sealer {
    sent: Option<(Key, IcrcContext)>,
    received: Option<(Key, IcrcContext)>,
}

fn context(cache: &mut Option<(Key, IcrcContext)>, key: Key) -> &IcrcContext {
    if cache.as_ref().is_none_or(|(cached, _)| *cached != key) {
        *cache = None;
    }
    let (_, context) = cache.get_or_insert_with(|| (key, IcrcContext::new(key.0, key.1, key.2, ROCE_PORT)));
    context
}

impl Sealer {
    /// Write the ICRC of every packet of a batch by the port's identification rule.
    pub(super) fn seal(&mut self, port: &dyn Port, batch: &mut TxBatch) {
        let path = &batch.path;
        let context = context(&mut self.sent, (path.src, path.dst, port.source_port(path)));
        if port.segments_have_ids() {
            context.seal(0, batch.segment_size, &mut batch.bytes);
        } else {
            for segment in batch.bytes.chunks_mut(batch.segment_size.max(1)) {
                context.seal(0, segment.len(), segment);
            }
        }
    }

    /// Check a received packet.
    pub(super) fn verify(&mut self, meta: &RxMeta, packet: &[u8], hint: u16) -> Result<(), BadIcrc> {
        context(&mut self.received, (meta.src, meta.dst, meta.sport))
            .verify(hint, packet)
            .map(drop)
    }
}
