//! Transport programs: pure functions over a small state of fixed size (tonic.md §1.7).
//!
//! Who writes a transport implements [`TransportProgram`] with a typed state. The engines hold a [`Program`], the
//! object-safe form, which is had for free; what cannot name its state at compile time (a plug-in) implements it
//! directly.

use super::actions::Actions;
use super::event::Incoming;
use super::view::FlowView;

/// Bytes of program state in each flow.
pub const STATE_BYTES: usize = 64;

/// Program state of one flow, aligned for any plain type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct StateBytes([u64; STATE_BYTES / 8]);

impl StateBytes {
    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }

    /// The bytes, to change them.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

/// When a flow's next segment may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreditScheme {
    /// As soon as it is inside the window.
    Window,
    /// At the flow's rate; the window stays at its maximum.
    Rate,
    /// Against tokens of the receiver.
    Grant,
    /// Inside the window and at the flow's rate.
    WindowAndRate,
}

/// What a program knows about a flow for the whole of its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowParams {
    /// Payload of a full segment, the path MTU.
    pub segment_size: u32,
    /// Line rate in bits a second, 0 for unknown.
    pub line_rate_bps: u64,
    /// Largest window in segments.
    pub max_window: u16,
}

/// A flow's first credit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Initial {
    /// Window in segments, `None` for the largest.
    pub window: Option<u16>,
    /// Rate in bits a second, `None` for no limit.
    pub rate_bps: Option<u64>,
    /// Segments that may leave before the first grant.
    pub grant: u16,
}

/// Why a program is visited outside the arrival of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// It asked for the visit.
    Visit,
    /// Early probe: the oldest segment has seen no progress for some round trips.
    Probe,
    /// The ACK timeout has ended; the device is told too.
    Timeout,
}

/// A transport protocol. `self` holds its parameters, the same for all flows.
pub trait TransportProgram: Send + Sync + 'static {
    /// Per-flow state, at most [`STATE_BYTES`].
    type State: bytemuck::Pod;
    /// Name by which it is chosen.
    const NAME: &'static str;
    /// How its segments get credit.
    const CREDIT: CreditScheme;

    /// State and credit of a new flow.
    fn init(&self, params: &FlowParams) -> (Self::State, Initial);
    /// A signal arrived; the window has been moved already.
    fn incoming(&self, view: &FlowView<'_>, event: &Incoming, state: &mut Self::State) -> Actions;
    /// A timer ended or a visit is due.
    fn periodic(&self, view: &FlowView<'_>, wake: Wake, state: &mut Self::State) -> Actions;
}

/// A transport protocol with its state type erased.
pub trait Program: Send + Sync {
    /// Name by which it is chosen.
    fn name(&self) -> &str;
    /// How its segments get credit.
    fn credit(&self) -> CreditScheme;
    /// Bytes of state it uses.
    fn state_size(&self) -> usize;
    /// State and credit of a new flow.
    fn init(&self, params: &FlowParams, state: &mut StateBytes) -> Initial;
    /// See [`TransportProgram::incoming`].
    fn incoming(&self, view: &FlowView<'_>, event: &Incoming, state: &mut StateBytes) -> Actions;
    /// See [`TransportProgram::periodic`].
    fn periodic(&self, view: &FlowView<'_>, wake: Wake, state: &mut StateBytes) -> Actions;
}

impl core::fmt::Debug for dyn Program {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Program").field(&self.name()).finish()
    }
}

/// The typed state in the bytes; evaluating `FITS` proves at compile time that size and alignment allow it.
struct Typed<P: TransportProgram>(core::marker::PhantomData<P>);

impl<P: TransportProgram> Typed<P> {
    const FITS: () = assert!(
        size_of::<P::State>() <= STATE_BYTES && align_of::<P::State>() <= align_of::<StateBytes>(),
        "the program's state is larger than STATE_BYTES or over-aligned"
    );

    #[inline]
    fn state(bytes: &mut StateBytes) -> &mut P::State {
        let () = Self::FITS;
        bytemuck::from_bytes_mut(&mut bytes.bytes_mut()[..size_of::<P::State>()])
    }
}

impl<P: TransportProgram> Program for P {
    fn name(&self) -> &str {
        P::NAME
    }

    fn credit(&self) -> CreditScheme {
        P::CREDIT
    }

    fn state_size(&self) -> usize {
        size_of::<P::State>()
    }

    fn init(&self, params: &FlowParams, state: &mut StateBytes) -> Initial {
        let (first, initial) = TransportProgram::init(self, params);
        *Typed::<P>::state(state) = first;
        initial
    }

    fn incoming(&self, view: &FlowView<'_>, event: &Incoming, state: &mut StateBytes) -> Actions {
        TransportProgram::incoming(self, view, event, Typed::<P>::state(state))
    }

    fn periodic(&self, view: &FlowView<'_>, wake: Wake, state: &mut StateBytes) -> Actions {
        TransportProgram::periodic(self, view, wake, Typed::<P>::state(state))
    }
}

/// The built-in programs with their default parameters; the first is the default.
pub fn programs() -> &'static [&'static dyn Program] {
    super::programs::ALL
}

/// The built-in program of this name.
pub fn program(name: &str) -> Option<&'static dyn Program> {
    programs().iter().copied().find(|program| program.name() == name)
}
