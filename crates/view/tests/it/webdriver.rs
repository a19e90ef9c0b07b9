//! A real browser: Debian's Chromium, headless, over WebDriver.
//!
//! In: addresses, scripts. Out: what scripts return, pictures, what the console says. Where chromedriver is not
//! installed, tests say `SKIPPED` and pass; with `VIEW_REQUIRE_BROWSER=1`, as `cargo xtask nightly browser` sets it,
//! they fail.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::call;

/// A window of a browser, which ends with it.
pub(crate) struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
    _profile: TempDir,
}

impl Browser {
    /// A window of this size; `None` where there is no browser.
    pub(crate) async fn open(width: u32, height: u32) -> Option<Self> {
        let driver = Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).spawn();
        let mut driver = match driver {
            Ok(driver) => driver,
            Err(error) => {
                assert!(std::env::var_os("VIEW_REQUIRE_BROWSER").is_none(), "chromedriver: {error}");
                eprintln!("SKIPPED: no chromedriver; cargo xtask nightly browser installs it");
                return None;
            }
        };
        let lines = BufReader::new(driver.stdout.take().unwrap()).lines().map_while(Result::ok);
        let port =
            |line: String| line.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok();
        let port: u16 = lines.filter_map(port).next().unwrap();
        let profile = tempfile::tempdir().unwrap();
        let mut browser = Self {
            driver,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            session: String::new(),
            _profile: profile,
        };
        let data = format!("--user-data-dir={}", browser._profile.path().display());
        let window = format!("--window-size={width},{height}");
        let arguments =
            ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", &window, &data];
        let capabilities = json!({"alwaysMatch": {"browserName": "chrome",
            "goog:chromeOptions": {"args": arguments}, "goog:loggingPrefs": {"browser": "ALL"},
            "acceptInsecureCerts": true}});
        let session = browser.ask("POST", "/session", &json!({"capabilities": capabilities})).await;
        browser.session = session["sessionId"].as_str().unwrap().to_owned();
        Some(browser)
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = call(self.address, method, path, &body.to_string()).await;
        let value = answer.json()["value"].take();
        assert_eq!(answer.status, 200, "{method} {path}: {value}");
        value
    }

    async fn command(&self, path: &str, body: Value) -> Value {
        self.ask("POST", &format!("/session/{}/{path}", self.session), &body).await
    }

    /// Loads a page.
    pub(crate) async fn load(&self, address: &str) {
        self.command("url", json!({"url": address})).await;
    }

    /// What a script returns.
    pub(crate) async fn run(&self, script: &str) -> Value {
        self.command("execute/sync", json!({"script": script, "args": []})).await
    }

    /// What a script hands to its last argument, a function.
    pub(crate) async fn run_async(&self, script: &str) -> Value {
        self.command("execute/async", json!({"script": script, "args": []})).await
    }

    /// Waits until an expression is true.
    pub(crate) async fn until(&self, expression: &str) {
        let script = format!(
            "const done = arguments[0]; const began = performance.now(); const look = () => {{ \
             if ({expression}) done(true); else if (performance.now() - began > 20000) done(false); \
             else setTimeout(look, 20); }}; look();"
        );
        assert_eq!(
            self.run_async(&script).await,
            true,
            "{expression}: {}",
            self.run("return document.body.innerText").await
        );
    }

    /// Prefers dark or light colours.
    pub(crate) async fn prefer(&self, scheme: &str) {
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.command("goog/cdp/execute", json!({"cmd": "Emulation.setEmulatedMedia", "params": media})).await;
    }

    /// A picture of the window, as PNG.
    pub(crate) async fn picture(&self) -> Vec<u8> {
        let path = format!("/session/{}/screenshot", self.session);
        let value = self.ask("GET", &path, &Value::Null).await;
        serde_json::from_value::<ByteString>(value).unwrap().0
    }

    /// What the console has said since the last call.
    pub(crate) async fn console(&self) -> Vec<Value> {
        let log = self.command("se/log", json!({"type": "browser"})).await;
        log.as_array().unwrap().clone()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends the browser with the session, not with itself.
        if let Ok(mut connection) = std::net::TcpStream::connect(self.address) {
            let path = format!("/session/{}", self.session);
            let _ = write!(connection, "DELETE {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
            let _ = connection.read(&mut [0; 64]);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
