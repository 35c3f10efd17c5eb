//! Devices as an application sees them in the list of devices.
//!
//! Made once for each device and never freed, so that a pointer from one list stays good in the next, and in a forked
//! child.

use crate::abi::verbs::{DEVICE_TAIL_ZEROS, IBV_NODE_CA, IBV_TRANSPORT_IB, ibv_device};
use crate::device::Device;
use crate::device::attributes::c_string;
use crate::entry::sysfs::CLASS_DIRECTORY;
use std::cell::UnsafeCell;
use std::sync::Arc;

/// A device as the application has it.
#[derive(Debug)]
#[repr(C)]
pub struct DeviceObject {
    /// Its public structure.
    pub public: UnsafeCell<ibv_device>,
    /// What vendor libraries take for an operations table, see [`DEVICE_TAIL_ZEROS`].
    tail: [u8; DEVICE_TAIL_ZEROS],
    /// The device.
    pub core: Arc<Device>,
}

impl DeviceObject {
    /// The object for `device`; `empty` is an all-zero structure.
    pub fn new(device: Arc<Device>, empty: ibv_device) -> Self {
        let public = ibv_device {
            node_type: IBV_NODE_CA,
            transport_type: IBV_TRANSPORT_IB,
            name: c_string(&device.name),
            dev_name: c_string(&format!("uverbs{}", device.index)),
            dev_path: c_string(&format!("/sys/class/infiniband_verbs/uverbs{}", device.index)),
            ibdev_path: c_string(&format!("{CLASS_DIRECTORY}{}", device.name)),
            ..empty
        };
        Self {
            public: UnsafeCell::new(public),
            tail: [0; DEVICE_TAIL_ZEROS],
            core: device,
        }
    }
}
