//! The brake of one member: an API that is too busy or broken is asked by one at a time, and after a while not at all for a
//! while; the first answer releases it.
//!
//! Every shard waits on its own after a failure (`shards`), but a thousand shards that each wait a minute still are a load that
//! keeps an API down. No other member feels it.

use std::time::{Duration, Instant};

/// So many failures in a row are the API's and not one object's.
const FAILURES: u32 = 3;
/// The first pause, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));
/// How often those who wait for the one that asks look whether it is done.
const POLL: Duration = Duration::from_millis(50);

/// What a request said about the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// It answers, be it with a no.
    Well,
    /// It is too busy, broken, or did not answer in time.
    Strained {
        /// How long it asks to be left alone.
        asked: Option<Duration>,
        /// What it said, or what went wrong.
        said: String,
    },
}

/// How hard a member may be pushed.
#[derive(Debug, Default)]
pub struct Brake {
    failures: u32,
    until: Option<Instant>,
    running: usize,
    said: String,
}

impl Brake {
    /// Whether one more request may begin now; else how long to wait before asking again.
    pub fn admit(&mut self, now: Instant) -> Result<(), Duration> {
        if let Some(left) =
            self.until.and_then(|until| until.checked_duration_since(now)).filter(|left| !left.is_zero())
        {
            return Err(left);
        }
        if self.failures > 0 && self.running > 0 {
            return Err(POLL);
        }
        self.running += 1;
        Ok(())
    }

    /// What is wrong with the API, while nothing it was asked has worked for some time.
    pub fn trouble(&self) -> Option<&str> {
        (self.failures >= FAILURES).then_some(self.said.as_str())
    }

    /// Says that a request that was admitted did not come about after all.
    pub fn withdraw(&mut self) {
        self.running = self.running.saturating_sub(1);
    }

    /// Says how a request went.
    pub fn done(&mut self, now: Instant, answered: Answered) {
        self.withdraw();
        match answered {
            Answered::Well => (self.failures, self.until) = (0, None),
            Answered::Strained { asked, said } => {
                self.said = said;
                self.failures = self.failures.saturating_add(1);
                let own = match self.failures.checked_sub(FAILURES) {
                    Some(more) => PAUSE.0.saturating_mul(1 << more.min(16)).min(PAUSE.1),
                    None => Duration::ZERO,
                };
                let until = now + own.max(asked.unwrap_or_default());
                self.until = Some(self.until.map_or(until, |before| before.max(until)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use landfall_runtime::clock;

    use super::*;

    const BROKEN: Answered = Answered::Strained { asked: None, said: String::new() };

    #[test]
    fn one_at_a_time_then_pauses_and_one_answer_releases() {
        let (mut brake, mut now) = (Brake::default(), clock::instant());
        assert!((0..8).all(|_| brake.admit(now).is_ok()), "a well one is asked by many");
        brake.done(now, BROKEN);
        assert_eq!(brake.admit(now), Err(POLL), "others are still on their way");
        (0..7).for_each(|_| brake.done(now, Answered::Well));
        assert_eq!(brake.admit(now), Ok(()));
        brake.withdraw();

        let mut pauses = Vec::new();
        for _ in 0..12 {
            while let Err(left) = brake.admit(now) {
                now += left;
            }
            brake.done(now, BROKEN);
            pauses.push(brake.admit(now).err().unwrap_or_default().as_millis());
            if pauses.last() == Some(&0) {
                brake.withdraw();
            }
        }
        assert_eq!(pauses, [0, 0, 250, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000]);
        now += Duration::from_secs(30);
        assert_eq!((brake.admit(now), brake.admit(now)), (Ok(()), Err(POLL)), "one asks for all");
        assert_eq!(brake.trouble(), Some(""));
        brake.done(now, Answered::Well);
        assert!((0..8).all(|_| brake.admit(now).is_ok()) && brake.trouble().is_none(), "it is well again");
    }

    #[test]
    fn what_it_asks_for_is_respected() {
        let (mut brake, now) = (Brake::default(), clock::instant());
        assert_eq!(brake.admit(now), Ok(()));
        brake.done(now, Answered::Strained { asked: Some(Duration::from_secs(7)), said: "busy".into() });
        assert_eq!(brake.admit(now), Err(Duration::from_secs(7)));
        assert_eq!(brake.admit(now + Duration::from_secs(7)), Ok(()));
    }
}
