//! What is left of an answer's body.

use super::chunks::{Chunks, Payload};
use super::response::Ends;

/// What is left of a body.
pub(super) enum Rest {
    Length(u64),
    Chunked(Chunks),
    Close,
}

impl Rest {
    pub(super) fn new(ends: Ends) -> Self {
        match ends {
            Ends::Length(length) => Self::Length(length),
            Ends::Chunked => Self::Chunked(Chunks::new()),
            Ends::Close => Self::Close,
        }
    }

    /// How many of these bytes belong to the body; none when they are unsound. What they carry is told.
    pub(super) fn follow(&mut self, came: &[u8], payload: &mut impl Payload) -> Option<usize> {
        let take = match self {
            Self::Length(left) => {
                let take = usize::try_from(*left).unwrap_or(usize::MAX).min(came.len());
                *left -= u64::try_from(take).unwrap_or(0);
                take
            }
            Self::Chunked(chunks) => return chunks.follow(came, payload).ok(),
            Self::Close => came.len(),
        };
        payload.data(came.get(..take)?);
        Some(take)
    }

    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(chunks) => chunks.is_over(),
            Self::Close => false,
        }
    }
}
