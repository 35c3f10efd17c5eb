//! The functions that need no device, against rdma-core's own library: both are loaded into the test and must answer
//! alike. Skipped where rdma-core is not installed.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::{MaybeUninit, transmute_copy};
use std::path::Path;

use verbs_provider::abi::kern::{ib_user_path_rec, ib_uverbs_ah_attr, ib_uverbs_qp_attr};
use verbs_provider::abi::verbs::{ibv_ah_attr, ibv_qp_attr, ibv_sa_path_rec};

mod common;

/// A loaded library; it stays loaded.
struct Library(*mut c_void);

impl Library {
    fn open(path: &Path) -> Self {
        let name = CString::new(path.to_str().expect("paths are UTF-8")).expect("paths have no zeros");
        // SAFETY: the name is a C string; the constructors of both libraries may run at any time.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{} can be loaded", path.display());
        Self(handle)
    }

    /// The function of that name and version, as type `F`, which must be that of its C declaration.
    fn get<F>(&self, name: &CStr, version: &CStr) -> F {
        // SAFETY: the handle is of a loaded library, and both names are C strings.
        let symbol = unsafe { libc::dlvsym(self.0, name.as_ptr(), version.as_ptr()) };
        assert!(!symbol.is_null(), "{name:?} is there");
        assert_eq!(size_of::<F>(), size_of_val(&symbol));
        // SAFETY: `F` is a function pointer, by the caller's word, and so is what dlvsym gave.
        unsafe { transmute_copy(&symbol) }
    }
}

fn both() -> Option<(Library, Library)> {
    let Some(real) = common::installed("libibverbs.so.1") else {
        eprintln!("skipped: rdma-core's libibverbs.so.1 is not installed");
        return None;
    };
    Some((Library::open(&common::ours()), Library::open(&real)))
}

#[test]
fn names_are_rdma_cores() {
    let Some((ours, real)) = both() else { return };
    for name in [
        c"ibv_wc_status_str",
        c"ibv_node_type_str",
        c"ibv_port_state_str",
        c"ibv_event_type_str",
    ] {
        type Describe = extern "C" fn(c_int) -> *const c_char;
        let (ours, real): (Describe, Describe) = (ours.get(name, c"IBVERBS_1.1"), real.get(name, c"IBVERBS_1.1"));
        for value in -3..40 {
            // SAFETY: both functions give C strings that are never freed.
            let (ours, real) = unsafe { (CStr::from_ptr(ours(value)), CStr::from_ptr(real(value))) };
            assert_eq!(ours, real, "{name:?}({value})");
        }
    }
}

#[test]
fn rates_are_rdma_cores() {
    type Convert = extern "C" fn(c_int) -> c_int;
    let Some((ours, real)) = both() else { return };
    for (name, version, range) in [
        (c"ibv_rate_to_mult", c"IBVERBS_1.0", -2..300),
        (c"ibv_rate_to_mbps", c"IBVERBS_1.1", -2..300),
        (c"mult_to_ibv_rate", c"IBVERBS_1.0", -2..1_000),
        (c"mbps_to_ibv_rate", c"IBVERBS_1.1", -2..1_500_000),
    ] {
        let (ours, real): (Convert, Convert) = (ours.get(name, version), real.get(name, version));
        for value in range {
            assert_eq!(ours(value), real(value), "{name:?}({value})");
        }
    }
}

/// Runs a conversion of both libraries on the same bytes, over the same earlier contents, and compares the results.
fn convert<D, S>(name: &CStr, version: &CStr) {
    let Some((ours, real)) = both() else { return };
    type Convert<D, S> = unsafe extern "C" fn(*mut D, *const S);
    let (ours, real): (Convert<D, S>, Convert<D, S>) = (ours.get(name, version), real.get(name, version));
    let mut source = MaybeUninit::<S>::zeroed();
    for at in 0..size_of::<S>() {
        // Each byte in turn differs from all others, so that a member taken from elsewhere shows.
        let value = u8::try_from(at % 251).expect("it is below 251") + 1;
        // SAFETY: `at` is within `source`.
        unsafe { source.as_mut_ptr().cast::<u8>().add(at).write(value) };
    }
    let run = |convert: Convert<D, S>| {
        // Zeros, as padding is not written by either library, and then a pattern for the members left alone.
        [0x00_u8, 0xa5].map(|fill| {
            let mut target = MaybeUninit::<D>::uninit();
            // SAFETY: the fill is within `target`, both pointers are valid, and every byte read was written before.
            unsafe {
                target.as_mut_ptr().cast::<u8>().write_bytes(fill, size_of::<D>());
                convert(target.as_mut_ptr(), source.as_ptr());
                std::slice::from_raw_parts(target.as_ptr().cast::<u8>(), size_of::<D>()).to_vec()
            }
        })
    };
    let (ours, real) = (run(ours), run(real));
    for at in 0..size_of::<D>() {
        // A byte that keeps the pattern in rdma-core's result is padding or left alone; ours may clear padding.
        let untouched = real[0][at] == 0x00 && real[1][at] == 0xa5;
        if untouched {
            continue;
        }
        assert_eq!(
            (ours[0][at], ours[1][at]),
            (real[0][at], real[1][at]),
            "{name:?}: byte {at}"
        );
    }
}

#[test]
fn conversions_are_rdma_cores() {
    convert::<ibv_ah_attr, ib_uverbs_ah_attr>(c"ibv_copy_ah_attr_from_kern", c"IBVERBS_1.1");
    convert::<ibv_qp_attr, ib_uverbs_qp_attr>(c"ibv_copy_qp_attr_from_kern", c"IBVERBS_1.0");
    convert::<ibv_sa_path_rec, ib_user_path_rec>(c"ibv_copy_path_rec_from_kern", c"IBVERBS_1.0");
    convert::<ib_user_path_rec, ibv_sa_path_rec>(c"ibv_copy_path_rec_to_kern", c"IBVERBS_1.0");
}
