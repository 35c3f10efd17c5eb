//! Which symbols the library exports, and what serves each.
//!
//! Two kinds. **Verbs** are versioned (`ibv_open_device@@IBVERBS_1.1`), as rdma-core's own library has them: a
//! reference from a program names the version, and `dlvsym` finds nothing else. `symbols.tsv` lists them all; the table
//! `exports!` below lists the implemented ones with their Rust function. The build script makes a trampoline for each,
//! and a stub answering "not supported" for the rest: programs and vendor libraries bind every symbol at start, so a
//! missing one would keep them from running at all.
//!
//! **Hooks** are unversioned (`write`), as glibc lets an unversioned definition stand in for `write@GLIBC_2.2.5` and for
//! any other version, provided our library comes before libc in the search order (it does, both preloaded and as a
//! dependency of the program). A versioned one would match only its own version. They are made with `libc_hook!` and
//! named in [`HOOKS`], and are the only unversioned symbols.

/// Names a Rust function for each implemented symbol; the build script reads this table too.
macro_rules! exports {
    ($($name:ident => $path:path,)*) => {
        /// The implementations under the names of their symbols, which is how the trampolines refer to them.
        #[cfg_attr(test, allow(unused_imports, reason = "unit tests are built without the trampolines"))]
        pub(crate) mod listed {
            $(pub(crate) use $path as $name;)*
        }
    };
}

exports! {
    ibv_wc_status_str => crate::entry::strings::ibv_wc_status_str,
    ibv_node_type_str => crate::entry::strings::ibv_node_type_str,
    ibv_port_state_str => crate::entry::strings::ibv_port_state_str,
    ibv_event_type_str => crate::entry::strings::ibv_event_type_str,
    ibv_rate_to_mult => crate::entry::rate::ibv_rate_to_mult,
    mult_to_ibv_rate => crate::entry::rate::mult_to_ibv_rate,
    ibv_rate_to_mbps => crate::entry::rate::ibv_rate_to_mbps,
    mbps_to_ibv_rate => crate::entry::rate::mbps_to_ibv_rate,

    ibv_copy_ah_attr_from_kern => crate::entry::convert::ibv_copy_ah_attr_from_kern,
    ibv_copy_qp_attr_from_kern => crate::entry::convert::ibv_copy_qp_attr_from_kern,
    ibv_copy_path_rec_from_kern => crate::entry::convert::ibv_copy_path_rec_from_kern,
    ibv_copy_path_rec_to_kern => crate::entry::convert::ibv_copy_path_rec_to_kern,

    ibv_get_sysfs_path => crate::entry::sysfs::ibv_get_sysfs_path,
    ibv_read_sysfs_file => crate::entry::sysfs::ibv_read_sysfs_file,

    ibv_fork_init => crate::entry::fork::ibv_fork_init,
    ibv_is_fork_initialized => crate::entry::fork::ibv_is_fork_initialized,
    ibv_dontfork_range => crate::entry::fork::ibv_dontfork_range,
    ibv_dofork_range => crate::entry::fork::ibv_dofork_range,

    ibv_get_device_list => crate::entry::device::ibv_get_device_list,
    ibv_free_device_list => crate::entry::device::ibv_free_device_list,
    ibv_get_device_name => crate::entry::device::ibv_get_device_name,
    ibv_get_device_guid => crate::entry::device::ibv_get_device_guid,
    ibv_get_device_index => crate::entry::device::ibv_get_device_index,
    ibv_open_device => crate::entry::device::ibv_open_device,
    ibv_close_device => crate::entry::device::ibv_close_device,
    ibv_query_device => crate::entry::device::ibv_query_device,
    ibv_query_port => crate::entry::device::ibv_query_port,
    ibv_query_gid => crate::entry::device::ibv_query_gid,
    ibv_query_pkey => crate::entry::device::ibv_query_pkey,
    ibv_get_pkey_index => crate::entry::device::ibv_get_pkey_index,
    _ibv_query_gid_ex => crate::entry::device::_ibv_query_gid_ex,
    _ibv_query_gid_table => crate::entry::device::_ibv_query_gid_table,
    ibv_query_gid_type => crate::entry::device::ibv_query_gid_type,

    ibv_alloc_pd => crate::entry::pd_mr::ibv_alloc_pd,
    ibv_dealloc_pd => crate::entry::pd_mr::ibv_dealloc_pd,
    ibv_reg_mr => crate::entry::pd_mr::ibv_reg_mr,
    ibv_reg_mr_iova => crate::entry::pd_mr::ibv_reg_mr_iova,
    ibv_reg_mr_iova2 => crate::entry::pd_mr::ibv_reg_mr_iova2,
    ibv_dereg_mr => crate::entry::pd_mr::ibv_dereg_mr,

    ibv_create_cq => crate::entry::cq::ibv_create_cq,
    ibv_destroy_cq => crate::entry::cq::ibv_destroy_cq,
    ibv_ack_cq_events => crate::entry::cq::ibv_ack_cq_events,
    ibv_get_cq_event => crate::entry::cq::ibv_get_cq_event,
    ibv_create_comp_channel => crate::entry::cq::ibv_create_comp_channel,
    ibv_destroy_comp_channel => crate::entry::cq::ibv_destroy_comp_channel,

    ibv_create_qp => crate::entry::qp::ibv_create_qp,
    ibv_modify_qp => crate::entry::qp::ibv_modify_qp,
    ibv_query_qp => crate::entry::qp::ibv_query_qp,
    ibv_destroy_qp => crate::entry::qp::ibv_destroy_qp,
    ibv_qp_to_qp_ex => crate::entry::qp::ibv_qp_to_qp_ex,

    ibv_create_ah => crate::entry::ah::ibv_create_ah,
    ibv_destroy_ah => crate::entry::ah::ibv_destroy_ah,
    ibv_init_ah_from_wc => crate::entry::ah::ibv_init_ah_from_wc,
    ibv_create_ah_from_wc => crate::entry::ah::ibv_create_ah_from_wc,

    ibv_get_async_event => crate::entry::event::ibv_get_async_event,
    ibv_ack_async_event => crate::entry::event::ibv_ack_async_event,
}

// Not in unit tests: their executable would define the verbs for nobody.
#[cfg(not(test))]
include!(concat!(env!("OUT_DIR"), "/trampolines.rs"));

/// The C library functions the library stands in for, on x86-64; see `libc_hook!`.
pub const HOOKS: &[&str] = &[
    "__fxstat",
    "__fxstat64",
    "__open64_2",
    "__open_2",
    "close",
    "fstat",
    "fstat64",
    "open",
    "open64",
    "openat",
    "openat64",
    "write",
];

/// Exports a naked function that stands in for one of the C library: `libc_hook! { /// Doc. write, "asm", name = sym … }`.
///
/// The body is assembly alone, so that no Rust frame ever stands on the application's stack between it and the real
/// function (which may be a cancellation point); it must end in a jump. The macro adds nothing to it. rustc exports the
/// symbol by its plain name, without a version. In unit tests the name is not exported, or the test would run on it.
///
/// Add the name to [`HOOKS`], or the test of the export table fails.
#[cfg_attr(
    not(target_arch = "x86_64"),
    allow(unused_macros, reason = "the hooks are x86-64 code")
)]
macro_rules! libc_hook {
    ($(#[$meta:meta])* $name:ident, $($asm:tt)*) => {
        $(#[$meta])*
        #[unsafe(naked)]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!($($asm)*)
        }
    };
}
#[cfg_attr(
    not(target_arch = "x86_64"),
    allow(unused_imports, reason = "the hooks are x86-64 code")
)]
pub(crate) use libc_hook;
