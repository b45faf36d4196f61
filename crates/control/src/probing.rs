//! Probing: asks a member's API whether it is well.
//!
//! A member that answers is asked once. One that says nothing is asked again before the first attempt has run out of time, over a
//! connection of its own: a connection that has died does not speak for the member. So three attempts in vain take a machine that has
//! fallen silent three and a half seconds, not six. Where there are several addresses, each is asked in its turn instead.

use std::future::Future;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt as _};
use http::Method;
use landfall_plan::membership::Probe;

use crate::client::{Ask, Trouble, ask};

/// How long after an attempt that is not answered the next begins.
const STAGGER: Duration = Duration::from_millis(700);

/// Makes attempts, each a moment after the one before, until one of them is answered; gives that answer, or the failure of each.
pub(crate) async fn attempts<F>(most: usize, attempt: impl Fn(usize) -> F) -> Vec<Probe>
where
    F: Future<Output = Probe>,
{
    staggered(most, STAGGER, attempt).await
}

async fn staggered<F>(most: usize, stagger: Duration, attempt: impl Fn(usize) -> F) -> Vec<Probe>
where
    F: Future<Output = Probe>,
{
    let mut waiting = FuturesUnordered::new();
    let (mut begun, mut failures) = (0, Vec::new());
    while failures.len() < most {
        if begun < most {
            waiting.push(attempt(begun));
            begun += 1;
        }
        let mut pause = std::pin::pin!(tokio::time::sleep(stagger));
        loop {
            tokio::select! {
                biased;
                Some(probe) = waiting.next() => match probe {
                    Probe::Unreachable(_) => failures.push(probe),
                    answer => return vec![answer],
                },
                () = &mut pause, if begun < most => break,
                else => break,
            }
        }
    }
    failures
}

/// Asks once.
pub(crate) async fn probe(client: &kube::Client, timeout: Duration) -> Probe {
    match ask(client, Ask::new(Method::GET, "/readyz"), timeout).await {
        Ok((_, said)) if said.trim_ascii() == b"ok" => Probe::Well,
        // Somebody stands there who says yes to everything.
        Ok(_) => Probe::Unwell("it answers, but not as Kubernetes does".into()),
        Err(Trouble::Refused { code: code @ (401 | 403), message, .. }) => {
            Probe::Refused(if message.is_empty() { format!("HTTP status {code}") } else { message })
        }
        Err(trouble @ Trouble::Refused { .. }) => Probe::Unwell(trouble.to_string()),
        Err(Trouble::Failed(what)) => Probe::Unreachable(what),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::sync::Barrier;

    use super::*;

    const MOMENT: Duration = Duration::from_millis(1);

    fn silent() -> Probe {
        Probe::Unreachable("no answer".into())
    }

    #[tokio::test]
    async fn one_that_answers_is_asked_once() {
        let asked = Cell::new(0);
        let found = staggered(3, MOMENT, |_| {
            asked.set(asked.get() + 1);
            async { Probe::Well }
        });
        assert_eq!(found.await, [Probe::Well]);
        assert_eq!(asked.get(), 1);
    }

    #[tokio::test]
    async fn attempts_at_one_that_is_silent_overlap() {
        // None of them ends before all have begun.
        let all = Barrier::new(3);
        let found = staggered(3, MOMENT, |_| async {
            all.wait().await;
            silent()
        });
        let found = tokio::time::timeout(Duration::from_secs(30), found).await.expect("they overlap");
        assert_eq!(found, [silent(), silent(), silent()]);
    }

    #[tokio::test]
    async fn one_that_refuses_connections_is_asked_as_often() {
        let found = staggered(3, MOMENT, |_| async { silent() });
        assert_eq!(found.await, [silent(), silent(), silent()]);
    }

    #[tokio::test]
    async fn a_dead_connection_does_not_speak_for_the_member() {
        let found = staggered(3, MOMENT, |number| async move {
            if number == 0 {
                std::future::pending::<()>().await;
            }
            Probe::Unwell("starting".into())
        });
        assert_eq!(found.await, [Probe::Unwell("starting".into())]);
    }
}
