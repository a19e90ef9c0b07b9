//! The page in a real browser: accessible, quiet on the console, quick with 5,000 nodes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use runtime::shutdown::Tasks;
use scheduler::cluster_input::ClusterInput;
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};
use view::web::start;

use crate::webdriver::Browser;
use crate::{fixture, web};

/// A server, and the address with its token.
struct Page {
    url: String,
    _stop: DropGuard,
}

async fn serve(input: ClusterInput) -> Page {
    let token = CancellationToken::new();
    let mut tasks = Tasks::new(token.clone());
    let started = start(&web::args(input, "127.0.0.1:0"), None, &mut tasks).await.unwrap();
    tokio::spawn(tasks.run(Duration::from_secs(1)));
    let session: Arc<str> = started.session.unwrap();
    Page { url: format!("http://{}/#token={session}", started.address), _stop: token.drop_guard() }
}

/// The accessibility checker, where `cargo xtask nightly browser` has put it.
fn axe() -> Option<String> {
    let path: PathBuf = std::env::var_os("VIEW_AXE")?.into();
    Some(std::fs::read_to_string(path).unwrap())
}

/// Folder for pictures, which the documents show.
fn pictures() -> Option<PathBuf> {
    std::env::var_os("VIEW_PICTURES").map(PathBuf::from)
}

#[tokio::test(flavor = "multi_thread")]
async fn all_zooms_are_accessible_and_quiet_in_light_and_dark() {
    let Some(browser) = Browser::open(1280, 900).await else { return };
    let (_folder, input) = fixture::dump();
    let page = serve(input).await;
    browser.load(&page.url).await;
    browser.until("state.nodes.size === 3").await;
    let zooms = [
        ("cluster", "#/", "document.querySelector('h1')?.textContent === 'Cluster'"),
        ("table", "#/?view=table", "document.querySelector('#table table') !== null"),
        ("node", "#/node/by-ids", "document.querySelector('.socket') !== null"),
        ("pod", "#/pod/ns/waits", "document.querySelectorAll('tbody tr').length === 3"),
        ("placed", "#/pod/ns/runs", "document.querySelector('dl') !== null"),
    ];
    for scheme in ["light", "dark"] {
        browser.prefer(scheme).await;
        for (name, hash, there) in zooms {
            browser.run(&format!("location.hash = {}", json!(hash))).await;
            browser.until(there).await;
            if let Some(axe) = axe() {
                browser.run(&axe).await;
                let script = "const done = arguments[0]; axe.run().then((found) => done(found.violations.map(\
                              (it) => `${it.id}: ${it.nodes.map((node) => node.html).join(' ')}`)))";
                assert_eq!(browser.run_async(script).await, json!([]), "{name} in {scheme}");
            }
            if let Some(folder) = pictures() {
                std::fs::write(folder.join(format!("web-{name}-{scheme}.png")), browser.picture().await)
                    .unwrap();
            }
        }
    }
    assert_eq!(browser.console().await, [] as [Value; 0]);
}

/// The pictures of the documents: a cluster with the answer to a question, and a node's cores.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_in_use_looks_as_in_the_documents() {
    let Some(browser) = Browser::open(1180, 620).await else { return };
    let (_folder, input) = fixture::showcase();
    let page = serve(input).await;
    browser.load(&page.url).await;
    browser.until("state.nodes.size === 41").await;
    let picture = async |name: &str| {
        if let Some(folder) = pictures() {
            std::fs::write(folder.join(name), browser.picture().await).unwrap();
        }
    };
    browser.prefer("light").await;
    browser
        .run("shapeInput.value = 'cpu=8,memory=16Gi'; document.querySelector('#shape-form button').click()")
        .await;
    browser.until("/^\\d+, on \\d+ nodes/.test(answer.textContent)").await;
    picture("web-cluster.png").await;
    browser.run("location.hash = '#/node/worker-17'").await;
    browser.until("document.querySelectorAll('.socket').length === 2").await;
    browser.until("['trainer-0', 'proxy-4'].every((name) => document.body.innerText.includes(name))").await;
    browser.until("document.body.innerText.includes('confirmed')").await;
    picture("web-node.png").await;
    assert_eq!(browser.console().await, [] as [Value; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_take_two_clicks_at_most() {
    let Some(browser) = Browser::open(1280, 900).await else { return };
    let (_folder, input) = fixture::dump();
    let page = serve(input).await;
    browser.load(&page.url).await;
    browser.until("state.nodes.size === 3").await;
    // How many more, and where.
    browser
        .run("shapeInput.value = 'cpu=2,memory=1Gi'; document.querySelector('#shape-form button').click()")
        .await;
    browser.until("answer.textContent.startsWith('5, on 2 nodes')").await;
    // Why does my pod wait?
    browser.until("document.querySelector('#waiting a') !== null").await;
    browser.run("document.querySelector('#waiting a').click()").await;
    browser.until("document.body.innerText.includes('most in one zone 4')").await;
    // The keyboard alone opens a node.
    browser.run("history.back()").await;
    browser.until("document.getElementById('map') !== null").await;
    let press = |key: &str| {
        format!(
            "document.getElementById('map').dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}'}}))"
        )
    };
    browser.run(&press("End")).await;
    browser.until("document.getElementById('hint').textContent.startsWith('silent')").await;
    browser.run(&press("Home")).await;
    browser.run(&press("Enter")).await;
    browser.until("location.hash.startsWith('#/node/by-ids')").await;
    assert_eq!(browser.console().await, [] as [Value; 0]);
}

/// 5,000 nodes of eight zones are on the screen within a second of their data, and 60 updates a second make no stall.
#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_nodes_are_drawn_and_follow() {
    let Some(browser) = Browser::open(1600, 1000).await else { return };
    let (_folder, input) = fixture::large(5_000, 8);
    let page = serve(input).await;
    browser.load(&page.url).await;
    browser.until("state.nodes.size === 5000").await;
    let drawn = "const done = arguments[0]; const began = performance.now(); const nodes = [...state.nodes.values()]; \
        state.nodes.clear(); state.order = null; const before = map.draws; take('restart', {nodes: 5000, isDump: true}); \
        for (let at = 0; at < nodes.length; at += 200) take('nodes', nodes.slice(at, at + 200)); take('version', 1); \
        const look = () => { if (map.draws > before) done(performance.now() - began); else requestAnimationFrame(look); }; look();";
    let drawn_ms = browser.run_async(drawn).await.as_f64().unwrap();
    let stall = "const done = arguments[0]; const nodes = [...state.nodes.values()]; let worst = 0; let last = performance.now(); \
        let updates = 0; const began = last; const frame = () => { const now = performance.now(); worst = Math.max(worst, now - last); \
        last = now; if (now - began > 5000) { done([worst, updates]); return; } requestAnimationFrame(frame); }; requestAnimationFrame(frame); \
        const timer = setInterval(() => { const node = structuredClone(nodes[(updates * 37) % nodes.length]); \
        node.zones[0].free[0] = (updates * 1000) % 8000; take('nodes', [node]); take('version', updates); updates += 1; \
        if (performance.now() - began > 4900) clearInterval(timer); }, 1000 / 60);";
    let found = browser.run_async(stall).await;
    let (worst_ms, updates) = (found[0].as_f64().unwrap(), found[1].as_f64().unwrap());
    println!(
        "browser: 5,000 nodes x 8 zones drawn in {drawn_ms:.0} ms; {updates} updates in 5 s, longest frame {worst_ms:.0} ms"
    );
    assert_eq!(browser.console().await, [] as [Value; 0]);
}
