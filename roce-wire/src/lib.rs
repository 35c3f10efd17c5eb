//! RoCEv2 packet formats.
