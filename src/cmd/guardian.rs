//! `adverb guardian`: the process that answers for processes that have ended. Started by the NIC, never by hand.

use crate::errors::Result;
use crate::host;

/// Runs until there is nobody left to answer for.
pub fn main() -> Result<()> {
    host::guardian()
}
