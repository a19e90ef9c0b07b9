//! Flags about the secure port: its address, its certificate, and who may read what.
//!
//! In: parsed flags. Out: an address and [`Serving`], or a text about what is wrong. Never: a file.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use runtime::delegated_auth::{Headers, Lookup, Remember, RequestHeader};
use runtime::goflag::Parsed;
use runtime::tls;

use crate::args::{Delegation, Serving};

/// The default port.
const PORT: i64 = 10259;
/// Paths that everybody may read by default.
const ALWAYS_ALLOWED: [&str; 3] = ["/healthz", "/readyz", "/livez"];

/// Reads them.
pub(super) fn read(parsed: &Parsed) -> Result<(SocketAddr, Serving), String> {
    let text = |name: &str| parsed.text(name).unwrap_or_default();
    let port = parsed.int("secure-port").unwrap_or(PORT);
    let port = u16::try_from(port)
        .map_err(|_| format!("--secure-port: {port} is not allowed; it must be 0 to 65535"))?;
    let address = match text("bind-address") {
        "" => "0.0.0.0",
        address => address,
    };
    let address: IpAddr = address
        .parse()
        .map_err(|_| format!("--bind-address: {address:?} is not allowed; it must be an IP address"))?;
    let (certificate, key) =
        certificate(text("tls-cert-file"), text("tls-private-key-file"), text("cert-dir"))?;
    let policy = tls::Policy::parse(text("tls-min-version"), text("tls-cipher-suites"))
        .map_err(|error| format!("--tls-min-version, --tls-cipher-suites: {error}"))?;
    let delegation = Box::new(delegation(parsed));
    let address = SocketAddr::new(address, port);
    if port == 0 {
        return Ok((address, Serving::Disabled));
    }
    let clients = Some(tls::ClientAuth::PerRequest);
    let tls = Box::new(tls::Settings { policy, clients, ..tls::Settings::new(certificate, key) });
    Ok((address, Serving::Secure { tls, delegation }))
}

/// The files of certificate and key; without any, a certificate is made at start.
fn certificate(certificate: &str, key: &str, directory: &str) -> Result<(PathBuf, PathBuf), String> {
    match (certificate.is_empty(), key.is_empty()) {
        (true, true) if !directory.is_empty() => {
            let directory = Path::new(directory);
            Ok((directory.join("kube-scheduler.crt"), directory.join("kube-scheduler.key")))
        }
        (one, other) if one != other => {
            Err("--tls-cert-file and --tls-private-key-file: give both or none".to_owned())
        }
        _ => Ok((certificate.into(), key.into())),
    }
}

fn delegation(parsed: &Parsed) -> Delegation {
    let path = |name: &str| parsed.text(name).filter(|text| !text.is_empty()).map(PathBuf::from);
    let list = |name: &str| parsed.text(name).map(split);
    let default = (Remember::default(), Headers::default());
    let holds = |name: &str, default| {
        parsed.duration(name).map_or(default, |stated| stated.to_std().unwrap_or_default())
    };
    let request_header = path("requestheader-client-ca-file").map(|ca| RequestHeader {
        ca,
        headers: Headers {
            allowed_names: list("requestheader-allowed-names").unwrap_or(default.1.allowed_names),
            username: list("requestheader-username-headers").unwrap_or(default.1.username),
            uid: list("requestheader-uid-headers").unwrap_or(default.1.uid),
            group: list("requestheader-group-headers").unwrap_or(default.1.group),
            extra_prefix: list("requestheader-extra-headers-prefix").unwrap_or(default.1.extra_prefix),
        },
    });
    let lookup = match (
        parsed.bool("authentication-skip-lookup"),
        parsed.bool("authentication-tolerate-lookup-failure"),
    ) {
        (Some(true), _) => Lookup::Skipped,
        (_, Some(false)) => Lookup::Required,
        _ => Lookup::Tolerant,
    };
    Delegation {
        authentication_kubeconfig: path("authentication-kubeconfig"),
        authorization_kubeconfig: path("authorization-kubeconfig"),
        client_ca: path("client-ca-file"),
        request_header,
        lookup,
        remember: Remember {
            tokens: holds("authentication-token-webhook-cache-ttl", default.0.tokens),
            allowed: holds("authorization-webhook-cache-authorized-ttl", default.0.allowed),
            denied: holds("authorization-webhook-cache-unauthorized-ttl", default.0.denied),
        },
        always_allow_paths: list("authorization-always-allow-paths")
            .unwrap_or_else(|| ALWAYS_ALLOWED.map(str::to_owned).into()),
    }
}

/// The parts of a list with commas.
fn split(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}
