//! The program of the image `program:1`: this very test binary; its environment says what to be.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, Config};
use testkit::cri::Image;
use tokio::signal::unix::{SignalKind, signal};

/// The image. `PROGRAM=serve` answers on port 8080, at `/ready` with what `READY` says; `PROGRAM=ask` asks the
/// API server for config maps until it may have them.
pub(super) fn image() -> Image {
    let me = std::env::current_exe().unwrap();
    Image::program(me).command(["--ignored", "--exact", "containers::program::main", "--nocapture"])
}

#[test]
#[ignore = "a part of other tests"]
fn main() {
    let Ok(what) = std::env::var("PROGRAM") else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        // The first process of a process namespace dies of no signal that it does not handle.
        let mut terminate = signal(SignalKind::terminate()).unwrap();
        let work = async {
            match what.as_str() {
                "serve" => serve().await,
                "ask" => ask().await,
                other => panic!("PROGRAM is {other:?}"),
            }
        };
        tokio::select! {
            never = work => match never {},
            _ = terminate.recv() => {}
        }
    });
    if let Ok(path) = std::env::var("BYE") {
        std::fs::write(path, "bye").unwrap();
    }
}

async fn serve() -> Infallible {
    let ready = if std::env::var("READY").is_ok_and(|ready| ready == "no") {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::OK
    };
    let listener = tokio::net::TcpListener::bind("0.0.0.0:8080").await.unwrap();
    axum::serve(listener, Router::new().route("/ready", get(async move || ready))).await.unwrap();
    panic!("the server ended")
}

async fn ask() -> Infallible {
    let client = Client::try_from(Config::incluster_env().unwrap()).unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    loop {
        match maps.list(&Default::default()).await {
            Ok(_) => break println!("allowed"),
            Err(kube::Error::Api(status)) if status.is_forbidden() => println!("forbidden"),
            Err(error) => println!("{error}"),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    std::future::pending().await
}
