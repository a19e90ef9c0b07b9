//! Waiting for what comes to rest.
//!
//! In: a look at something. Out: what is seen once it stays the same. Never: a limit; callers have one of their own.

use std::time::Duration;

/// Looks every `pause` until the same has been seen `times` times more; says what that is.
///
/// # Errors
/// When a look fails.
pub async fn until_quiescent<T: PartialEq>(
    times: u32,
    pause: Duration,
    mut look: impl AsyncFnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let (mut before, mut same) = (look().await?, 0);
    while same < times {
        tokio::time::sleep(pause).await;
        let now = look().await?;
        same = if now == before { same + 1 } else { 0 };
        before = now;
    }
    Ok(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_stays_the_same_rests() {
        let mut looks = [1, 1, 2, 2, 2, 3].into_iter();
        let pause = Duration::ZERO;
        assert_eq!(until_quiescent(2, pause, async || Ok(looks.next().unwrap())).await.unwrap(), 2);
        assert_eq!(looks.next(), Some(3), "no look more than needed");
        assert!(
            until_quiescent(2, pause, async || -> anyhow::Result<()> { anyhow::bail!("gone") })
                .await
                .is_err()
        );
    }
}
