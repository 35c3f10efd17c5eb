//! JOIN_MCAST and LEAVE_MCAST. Over RoCEv2 a group is an IP multicast address: there is nobody to ask, joining is told
//! to the application at once, and the QP starts to receive when it is attached (`ibv_attach_mcast`).

use core::net::SocketAddr;

use super::command::{Ece, Response};
use super::event::{DatagramParam, Event, EventKind, Param, PrivateData, Queued};
use super::id::IdState;
use super::path::{AddressHandle, HOP_LIMIT, gid};
use super::qp_attr::UDP_QKEY;
use super::{Core, Errno};

/// QPN that addresses the members of a group.
const MULTICAST_QPN: u32 = 0xFF_FFFF;

/// An id's membership in a group.
#[derive(Debug)]
pub(super) struct Membership {
    owner: u32,
    pub(super) events_reported: u32,
}

impl Core {
    /// JOIN_MCAST and JOIN_IP_MCAST.
    pub(super) fn join_multicast(&mut self, handle: u32, uid: u64, group: SocketAddr) -> Result<Response, Errno> {
        let id = self.ids.get_mut(handle).ok_or(libc::ENOENT)?;
        let Some(device) = &id.device else {
            return Err(libc::EINVAL);
        };
        if !matches!(
            id.state,
            IdState::Bound | IdState::AddressResolved | IdState::RouteResolved
        ) {
            return Err(libc::EINVAL);
        }
        if !group.ip().is_multicast() {
            return Err(libc::EINVAL);
        }
        let ah = AddressHandle {
            dgid: gid(group.ip()),
            flow_label: 0,
            sgid_index: device.gid_index,
            hop_limit: HOP_LIMIT,
            traffic_class: id.type_of_service,
            sl: id.type_of_service >> 5,
            static_rate: 0,
        };
        let qkey = *id.qkey.get_or_insert(UDP_QKEY);
        let file = id.file;
        let membership = self
            .groups
            .insert(Membership {
                owner: handle,
                events_reported: 0,
            })
            .ok_or(libc::ENOMEM)?;
        let param = DatagramParam {
            qp_num: MULTICAST_QPN,
            qkey,
            ah,
            private_data: PrivateData::default(),
        };
        let event = Event {
            uid,
            id: membership,
            kind: EventKind::MulticastJoin,
            status: 0,
            param: Param::Datagram(Box::new(param)),
            ece: Ece::default(),
        };
        self.push(
            file,
            Queued {
                event,
                owner: handle,
                group: Some(membership),
            },
        );
        Ok(Response::Id(membership))
    }

    /// LEAVE_MCAST.
    pub(super) fn leave_multicast(&mut self, file: super::command::FileId, group: u32) -> Result<Response, Errno> {
        let owner = self.groups.get(group).ok_or(libc::ENOENT)?.owner;
        if self.ids.get(owner).is_none_or(|id| id.file != file) {
            return Err(libc::EINVAL);
        }
        if let Some(channel) = self.files.get_mut(&file) {
            channel.events.retain(|queued| queued.group != Some(group));
            self.touched.insert(file);
        }
        let membership = self.groups.remove(group).ok_or(libc::ENOENT)?;
        Ok(Response::EventsReported(membership.events_reported))
    }

    /// Forget the memberships of an id that is going away.
    pub(super) fn leave_all_groups(&mut self, owner: u32) {
        let left: Vec<u32> = self
            .groups
            .iter()
            .filter(|(_, membership)| membership.owner == owner)
            .map(|(group, _)| group)
            .collect();
        for group in left {
            self.groups.remove(group);
        }
    }
}
