//! Our stack passes our suite: tier 0, or what `E2E_ARGS` says.

use super::rig::play;

/// `E2E_ARGS='--focus 85792' cargo xtask test -p e2e --test it -- suite --nocapture` runs what it is told.
#[test]
fn our_stack_passes() {
    play(async |rig| {
        let told = std::env::var("E2E_ARGS").unwrap_or_else(|_| "--tier-up-to=0".to_owned());
        let words: Vec<&str> = told.split_whitespace().collect();
        let (code, stdout, stderr) = rig.e2e(&words).await;
        println!("{stderr}\n{stdout}");
        println!("e2e: {}", stdout.lines().last().unwrap_or_default());
        assert_eq!(code, Some(0));
    });
}
