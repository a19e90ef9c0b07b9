//! Health checks, metrics and the effective configuration, as the flags say.
//!
//! In: flags, the endpoints of the process. Out: servers. Never: more than health over TLS to clients whom the API
//! server does not know.

use std::path::Path;

use anyhow::Context as _;
use api::schedulerconfig::SchedulerConfig;
use kube::Client;
use runtime::client::{Connection, Options};
use runtime::delegated_auth::{Guard, Settings};
use runtime::http::{Endpoints, Router};
use runtime::shutdown::Tasks;
use runtime::tls;

use super::{WRITE_TIMEOUT, user_agent};
use crate::args::{Args, Delegation, Serving};
use crate::configz;

/// Serves them until the tasks end.
pub(super) async fn serve(
    tasks: &mut Tasks,
    (args, file): (&Args, &SchedulerConfig),
    (endpoints, resources): (Endpoints, Router),
) -> anyhow::Result<()> {
    let token = tasks.token().clone();
    let routers = endpoints.routers();
    runtime::http::serve_health(tasks, args.health_probe_bind_address, routers.probes).await?;
    match &args.serving {
        Serving::Disabled => {}
        Serving::Plain => {
            let listener = runtime::http::bind(args.http_bind_address).await?;
            tasks.spawn_draining("http", runtime::http::serve(listener, routers.all, token));
        }
        Serving::Secure { tls, delegation } => {
            let guard = Guard::new(settings(delegation).await?).await?;
            let listener = runtime::http::bind(args.http_bind_address).await?;
            let server = tls::CertWatcher::new(tls)?;
            let configuration = runtime::http::document("/configz", &configz::configz(file));
            // They name pods, and configuration: only readers whose right was looked up get them.
            let router = guard.protect(routers.all.merge(configuration).merge(resources));
            tasks.spawn_draining("https", tls::serve(listener, router, token, server));
            tasks.spawn("client authorities", async move {
                guard.follow().await;
                Ok::<_, std::convert::Infallible>(())
            });
        }
    }
    Ok(())
}

async fn settings(delegation: &Delegation) -> anyhow::Result<Settings> {
    let Delegation { authentication_kubeconfig, authorization_kubeconfig, .. } = delegation.clone();
    let authentication = client(authentication_kubeconfig.as_deref(), "authentication").await?;
    if authentication.is_none() {
        tracing::warn!("no --authentication-kubeconfig, and not in a pod: tokens are not looked at");
    }
    let authorization = client(authorization_kubeconfig.as_deref(), "authorization").await?;
    if authorization.is_none() {
        tracing::warn!("no --authorization-kubeconfig, and not in a pod: only health checks are served");
    }
    Ok(Settings {
        authentication,
        authorization,
        client_ca: delegation.client_ca.clone(),
        request_header: delegation.request_header.clone(),
        lookup: delegation.lookup,
        remember: delegation.remember,
        always_allow_paths: delegation.always_allow_paths.clone(),
    })
}

/// The API server of a kubeconfig, or that of the pod of this process.
async fn client(kubeconfig: Option<&Path>, of: &str) -> anyhow::Result<Option<Client>> {
    let connection = match kubeconfig {
        None => Connection::in_cluster(&user_agent())?,
        Some(path) => {
            let options =
                Options { kubeconfig: Some(path.to_owned()), user_agent: user_agent(), ..Options::default() };
            let opened = Connection::open(&options).await;
            Some(opened.with_context(|| format!("failed to get delegated {of} kubeconfig"))?)
        }
    };
    Ok(connection.map(|connection| connection.client_with_timeout(WRITE_TIMEOUT)).transpose()?)
}
