//! A deployment or removal that is stopped anywhere and started again ends where one that is not stopped does.
//!
//! `INTERRUPTIONS=200 SEED=7 cargo test -p deployer --test it -- interrupted --nocapture` plays that many; 8 are the
//! default.

use runtime::random::Random;

use super::*;

/// How it is stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    /// As Ctrl-C does.
    Asked,
    /// As SIGKILL does: the calls under way may or may not have been done.
    Dropped,
}

impl How {
    /// One or the other.
    pub(crate) fn any(random: &mut Random) -> Self {
        if random.bits().is_multiple_of(2) { Self::Asked } else { Self::Dropped }
    }

    /// Stops it.
    pub(crate) fn stop<T>(self, token: &CancellationToken, task: &tokio::task::JoinHandle<T>) {
        match self {
            Self::Asked => token.cancel(),
            Self::Dropped => task.abort(),
        }
    }
}

/// What a variable of the environment says.
pub(crate) fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().expect(variable))
}

/// Lets `work` go on until the proxy has seen this many more requests.
async fn stopped<T>(
    rig: &Rig,
    requests: usize,
    how: How,
    token: CancellationToken,
    work: impl Future<Output = T> + Send + 'static,
) where
    T: Send + 'static,
{
    let wanted = rig.proxy.seen().len() + requests;
    let mut task = tokio::spawn(work);
    loop {
        tokio::select! {
            _ = &mut task => return,
            () = tokio::time::sleep(Duration::from_micros(200)) => {}
        }
        if rig.proxy.seen().len() >= wanted {
            break;
        }
    }
    how.stop(&token, &task);
    let _ = tokio::time::timeout(PATIENCE, task).await.expect("an end in time");
}

#[tokio::test]
async fn wherever_it_is_interrupted_the_end_is_the_same() {
    let Some(rig) = Rig::start().await else { return };
    let _manager = rig.control.start_controller_manager().await.unwrap();
    settled(&rig.admin).await.unwrap();
    let (count, seed) = (number("INTERRUPTIONS", 8), number("SEED", 1));
    let mut random = Random::seeded(seed);
    let settings = Settings { wait: true, ..quick() };
    let old = Variant { replicas: 0, ..Variant::default() };
    let new = Variant { text: "two", config: false, role: "other", image: "any:2", ..old.clone() };
    let empty = rig.dump().await;
    // All calls of a whole one, so that each moment may be hit.
    let before = rig.proxy.seen().len();
    rig.deploy(&parts(&old), &settings).await.unwrap();
    let all = rig.proxy.seen().len() - before;
    let end = async |variant: &Variant| {
        rig.deploy(&parts(variant), &settings).await.unwrap();
        settled(&rig.admin).await.unwrap();
        relevant(rig.dump().await)
    };
    let ends = [end(&old).await, end(&new).await];
    for round in 0..count {
        let shapes = [&old, &new];
        let which = (random.bits() % 2) as usize;
        let how = How::any(&mut random);
        let requests = (random.bits() % all as u64) as usize + 1;
        let removes = random.bits().is_multiple_of(3);
        println!(
            "seed {seed}, round {round}: {how:?} after {requests} of about {all} calls, version {which}, removing {removes}"
        );
        let (token, client, told) = (CancellationToken::new(), rig.client.clone(), settings.clone());
        let (stop, wanted) = (token.clone(), parts(shapes[which]));
        if removes {
            let work = async move {
                remove(&client, &Component::ALL, &told, &mut |_: &Step<'_>| {}, &stop).await.map(drop)
            };
            stopped(&rig, requests, how, token, work).await;
            rig.remove(&Component::ALL, &settings).await.unwrap();
            assert_same(&empty, &rig.dump().await);
        } else {
            let work =
                async move { deploy(&client, &wanted, &told, &mut |_: &Step<'_>| {}, &stop).await.map(drop) };
            stopped(&rig, requests, how, token, work).await;
            assert_same(&ends[which], &end(shapes[which]).await);
        }
    }
    rig.remove(&Component::ALL, &settings).await.unwrap();
    assert_same(&empty, &rig.dump().await);
    println!(
        "interrupted: {count} of {count} deployments and removals ended as uninterrupted ones (seed {seed})"
    );
}
