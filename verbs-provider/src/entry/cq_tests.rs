//! Completion queues and channels by way of their C entries.

use super::*;
use std::os::fd::RawFd;

/// A channel as an application has it. No CQ reports to it, so no device is needed.
struct TestChannel(*mut ibv_comp_channel);

impl TestChannel {
    fn new() -> Self {
        Self(handle::into_raw(Box::new(Channel::new(std::ptr::null_mut()).unwrap())))
    }

    fn fd(&self) -> RawFd {
        // SAFETY: alive until dropped.
        unsafe { (*self.0).fd }
    }
}

impl Drop for TestChannel {
    fn drop(&mut self) {
        // SAFETY: made above, dropped once.
        assert_eq!(unsafe { ibv_destroy_comp_channel(self.0) }, 0);
    }
}

/// `ibv_get_cq_event` on `channel`.
fn get_event(channel: *mut ibv_comp_channel) -> c_int {
    let (mut cq, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the tests keep the channel alive.
    unsafe { ibv_get_cq_event(channel, &raw mut cq, &raw mut context) }
}

#[test]
fn descriptor_is_the_applications_to_configure() {
    let channel = TestChannel::new();
    // SAFETY: fcntl with these commands takes no pointers.
    unsafe {
        assert_eq!(
            libc::fcntl(channel.fd(), libc::F_GETFD) & libc::FD_CLOEXEC,
            libc::FD_CLOEXEC
        );
        let flags = libc::fcntl(channel.fd(), libc::F_GETFL);
        assert_eq!(libc::fcntl(channel.fd(), libc::F_SETFL, flags | libc::O_NONBLOCK), 0);
    }
    assert_eq!(get_event(channel.0), -1);
    assert_eq!(Errno::last(), Errno::AGAIN);
}

#[test]
fn a_channel_in_use_is_not_destroyed() {
    let channel = TestChannel::new();
    // SAFETY: alive until dropped.
    let core = unsafe { &handle::borrow::<Channel>(channel.0).unwrap().core };
    core.attach();
    // SAFETY: as above; it is refused.
    assert_eq!(unsafe { ibv_destroy_comp_channel(channel.0) }, libc::EBUSY);
    core.detach();
}

/// Waits for an event as an application written in C would: without anything on the stack to clean up, hence without
/// any call but the one.
extern "C" fn wait_for_event(channel: *mut c_void) -> *mut c_void {
    const NO_CQ: *mut ibv_cq = std::ptr::null_mut();
    const NO_CONTEXT: *mut c_void = std::ptr::null_mut();
    let (mut cq, mut context) = (NO_CQ, NO_CONTEXT);
    // SAFETY: the test keeps the channel alive until the thread has ended.
    unsafe { ibv_get_cq_event(channel as *mut ibv_comp_channel, &raw mut cq, &raw mut context) };
    context
}

unsafe extern "C" {
    fn pthread_cancel(thread: libc::pthread_t) -> c_int;
}

#[test]
fn a_thread_waiting_for_an_event_can_be_cancelled() {
    let channel = TestChannel::new();
    let mut thread = 0;
    let mut result = std::ptr::null_mut();
    // SAFETY: valid arguments; the thread uses only the channel, which outlives it.
    unsafe {
        let created = libc::pthread_create(
            &raw mut thread,
            std::ptr::null(),
            wait_for_event,
            channel.0.cast::<c_void>(),
        );
        assert_eq!(created, 0);
        // Let it get into `read`, if there is time; that is the next cancellation point in any case.
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(pthread_cancel(thread), 0);
        assert_eq!(libc::pthread_join(thread, &raw mut result), 0);
    }
    assert_eq!(result.addr(), usize::MAX, "PTHREAD_CANCELED");
    // Nothing is left locked: the channel works.
    // SAFETY: alive until dropped.
    let core = unsafe { &handle::borrow::<Channel>(channel.0).unwrap().core };
    assert!(core.events.is_empty());
}
