//! What a client of HTTP/2 sends beside its requests: pings, settings, windows, priorities, empty frames. Each is little work, and
//! `h2` answers them for as long as the answers are taken. Whoever sends nothing else is let go.
//!
//! Frames are counted by their heads alone, as they pass; what is in them is for `h2` to read.

/// Bytes of a frame's head (RFC 9113, 4.1).
const HEAD: usize = 9;
/// What stands before the first.
const PREFACE: usize = 24;
/// Kinds of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
/// The flag of an answer to settings or a ping, and what such answers take.
const ACK: u8 = 1;
const SETTINGS_ANSWER: u64 = 9;
const PING_ANSWER: u64 = 17;
/// A client that sends a request may give it up, and make room for its answer, by so many more.
const PER_REQUEST: u32 = 8;
/// Who is sent so many bytes, beside answers to its own noise, may say that there is room for more. It is few: clients of gRPC ping with each
/// message of a stream, to measure how far away we are, and the shortest has 14.
const BYTES_PER_FRAME: u64 = 7;

/// Frames that ask for nothing, as far as nothing that was asked for explains them.
pub(super) struct Noise {
    /// The head of the frame that has come so far.
    head: [u8; HEAD],
    come: usize,
    /// Bytes that belong to no head.
    skip: usize,
    /// Bytes of answers that it will be sent whatever it asked.
    answers: u64,
    /// Bytes that were written, and not yet weighed.
    written: u64,
}

impl Noise {
    /// Nothing has come yet, not even the preface.
    pub(super) fn new() -> Self {
        Self { head: [0; HEAD], come: 0, skip: PREFACE, answers: 0, written: 0 }
    }

    /// Bytes came: gives how many frames there are now to be explained, of those that there were before.
    pub(super) fn heard(&mut self, mut bytes: &[u8], mut frames: u32) -> u32 {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let part = (HEAD - self.come).min(bytes.len());
            if self.skip > 0 || part == 0 {
                continue;
            }
            self.head[self.come..self.come + part].copy_from_slice(&bytes[..part]);
            self.come += part;
            bytes = &bytes[part..];
            if self.come == HEAD {
                frames = self.frame(frames);
            }
        }
        frames
    }

    /// A head is whole.
    fn frame(&mut self, frames: u32) -> u32 {
        let [high, middle, low, kind, flags, ..] = self.head;
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        (self.come, self.skip) = (0, length);
        if flags & ACK == 0 {
            self.answers = self.answers.saturating_add(match kind {
                SETTINGS => SETTINGS_ANSWER,
                PING => PING_ANSWER,
                _ => 0,
            });
        }
        match kind {
            HEADERS => frames.saturating_sub(PER_REQUEST),
            // How many there may be is limited by `h2`.
            CONTINUATION => frames,
            DATA if length > 0 => frames,
            _ => frames.saturating_add(1),
        }
    }

    /// Bytes were written.
    pub(super) fn said(&mut self, bytes: usize, frames: u32) -> u32 {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let answers = self.answers.min(bytes);
        self.answers -= answers;
        self.written = self.written.saturating_add(bytes - answers);
        let explained = self.written / BYTES_PER_FRAME;
        self.written %= BYTES_PER_FRAME;
        frames.saturating_sub(u32::try_from(explained).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, length: u8) -> Vec<u8> {
        [&[0, 0, length, kind, 0, 0, 0, 0, 1][..], &vec![7; usize::from(length)]].concat()
    }

    #[test]
    fn what_asks_for_nothing_is_counted_however_it_is_cut() {
        let (ping, settings, window, empty) = (frame(6, 8), frame(4, 0), frame(8, 4), frame(DATA, 0));
        let all = [&[0; PREFACE][..], &settings, &ping, &ping, &window, &frame(DATA, 200), &empty].concat();
        for cut in 1..all.len() {
            let mut noise = Noise::new();
            let frames = all.chunks(cut).fold(0, |frames, bytes| noise.heard(bytes, frames));
            assert_eq!(frames, 5, "{cut}");
        }
    }

    #[test]
    fn requests_and_answers_explain_some() {
        let mut noise = Noise::new();
        let frames = noise.heard(&[&[0; PREFACE][..], &frame(8, 4).repeat(10)].concat(), 0);
        assert_eq!(frames, 10);
        let frames = noise.heard(&frame(HEADERS, 6), frames);
        assert_eq!(frames, 2);
        assert_eq!(noise.said(14, frames), 0);
        assert_eq!(noise.said(usize::MAX, 1), 0);
    }

    #[test]
    fn answers_to_noise_explain_none_and_messages_explain_pings() {
        let mut noise = Noise::new();
        let begin = [&[0; PREFACE][..], &frame(SETTINGS, 6), &frame(PING, 8)].concat();
        assert_eq!(noise.heard(&begin, 0), 2);
        assert_eq!(noise.said(9 + 17, 2), 2);
        // A stream of the shortest messages, each with a ping and its window.
        let mut frames = 0;
        for _ in 0..1_000 {
            frames = noise.heard(&[frame(PING, 8), frame(8, 4)].concat(), frames);
            frames = noise.said(9 + 5 + 17, frames);
        }
        assert_eq!(frames, 0);
    }
}
