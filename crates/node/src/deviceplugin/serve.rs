//! Rounds of serving and registering.
//!
//! In: a plugin and the paths of its sockets. Out: calls of the kubelet reach the plugin. Never: a registration before
//! the socket is served.
//!
//! A round makes the socket, serves it, dials it for a test, and registers. It lasts as long as the kubelet listens and
//! neither socket is replaced.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::fs::FileTypeExt as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::Status;
use tonic::transport::{Channel, Endpoint, Server};

use super::service::{Lists, Service, options};
use super::wire::device_plugin_client::DevicePluginClient;
use super::wire::registration_client::RegistrationClient;
use super::{Error, Plugin, RegistrationEvent, RegistrationMode, SocketPaths, VERSION, wire};
use crate::pause::Pause;
use crate::pluginwatcher::{self, Info, Kind, Registrar};
use crate::socket::{Identity, Own, RECHECK};
use crate::watch::{Hub, Names, Subscription, Target};

/// The deadline of a registration. The kubelet dials the plugin before it answers, with a timeout of 10 s.
const DEADLINE: Duration = Duration::from_secs(15);
/// The deadline of the test of our own socket.
const SELF_DIAL: Duration = Duration::from_secs(5);
/// The longest time between a registration and the kubelet's `ListAndWatch`.
const LISTENS_WITHIN: Duration = Duration::from_secs(10);
/// The time after which a socket that the plugin watcher has not found is made anew.
const SEEN_WITHIN: Duration = Duration::from_secs(60);
/// The file that the kubelet writes in the folder with every pod.
const CHECKPOINT: &str = "kubelet_internal_checkpoint";
/// The shortest time between registrations after the end of other plugins.
const AFTER_NEIGHBOUR: Duration = Duration::from_secs(60);
/// The most concurrent lists. Each registration after the end of another plugin adds one.
const MAX_LISTS: usize = 32;
/// The time that connections have to end after a round.
const GRACE: Duration = Duration::from_secs(1);

/// Serves the plugin and keeps it registered until the future is dropped. That ends the kubelet's list and removes the
/// socket. `hub` has the file events. Must be called inside a tokio runtime.
///
/// # Errors
/// The socket cannot be made or served. An absent or refusing kubelet is retried for ever.
pub async fn run<P: Plugin>(paths: &SocketPaths, plugin: Arc<P>, hub: &Hub) -> Result<Infallible, Error> {
    // Sockets of the kubelet and of plugins; the kubelet's checkpoints in the same folder change with every pod.
    let targets = vec![Target { dir: paths.folder.clone(), names: Names::Other(CHECKPOINT), tag: () }];
    let mut events = hub.subscribe(targets);
    let mut pause = Pause::new(&paths.resource);
    loop {
        let clash = || plugin.on_registration(RegistrationEvent::Clash);
        let (listener, own) = Own::alone(&paths.socket(), &mut events, &mut pause, clash).await?;
        let (round, over) = watch::channel(());
        let mut ended = over.clone();
        let (lists, listening) = watch::channel(Lists::default());
        let status = watch::Sender::new(pluginwatcher::Status::Unseen);
        let mut services = Server::builder().add_service(Service::server(Arc::clone(&plugin), over, lists));
        if paths.mode == RegistrationMode::Watcher {
            services = services.add_service(Registrar::new(info(paths), status.clone()).server());
        }
        let server = services.serve_with_incoming_shutdown(UnixListenerStream::new(listener), async move {
            // The round ends with the sender.
            let _ = ended.changed().await;
        });
        tokio::pin!(server);
        let mut stay = Stay { paths, plugin: &*plugin, own: &own, listening, pause: &mut pause };
        let stay = async {
            match paths.mode {
                RegistrationMode::Register => stay.registered(&mut events).await,
                RegistrationMode::Watcher => stay.found(&mut events, &status).await,
            }
        };
        tokio::select! {
            served = &mut server => served.map_err(|source| Error::Serve { path: paths.socket(), source })?,
            () = stay => {}
        }
        drop(round);
        // Connections of this round end before the next one serves.
        let _ = timeout(GRACE, server).await;
    }
}

/// The description of the plugin for the plugin watcher.
fn info(paths: &SocketPaths) -> Info {
    Info {
        kind: Kind::DevicePlugin,
        name: paths.resource.clone(),
        endpoint: None,
        versions: vec![VERSION.to_owned()],
    }
}

/// Sockets of other plugins.
///
/// One of them may have registered our resource after us, such as a former plugin that has not ended yet. The kubelet
/// takes its end for the end of the resource, without a message to us. So the end of any of them leads to another
/// registration with the same socket; the devices stay healthy meanwhile.
struct Neighbours {
    sockets: BTreeSet<OsString>,
    gone: bool,
    asked: Option<Instant>,
}

impl Neighbours {
    fn new(paths: &SocketPaths) -> Self {
        Self { sockets: sockets(paths), gone: false, asked: None }
    }

    /// Whether a socket has gone since the last `true`, which was some time ago.
    fn one_has_gone(&mut self, paths: &SocketPaths) -> bool {
        let now = sockets(paths);
        self.gone |= !self.sockets.is_subset(&now);
        self.sockets = now;
        let due = self.gone && self.asked.is_none_or(|asked| asked.elapsed() >= AFTER_NEIGHBOUR);
        if due {
            (self.gone, self.asked) = (false, Some(Instant::now()));
        }
        due
    }
}

/// Names of the sockets in the folder, except for our own and the kubelet's. Not all end in `.sock`.
fn sockets(paths: &SocketPaths) -> BTreeSet<OsString> {
    let entries = std::fs::read_dir(&paths.folder).into_iter().flatten().flatten();
    let sockets = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
    let others = |name: &OsString| *name != *super::KUBELET_SOCKET && *name != *paths.endpoint;
    sockets.map(|entry| entry.file_name()).filter(others).collect()
}

/// The part of a round that runs beside the server.
struct Stay<'a, P> {
    paths: &'a SocketPaths,
    plugin: &'a P,
    own: &'a Own,
    listening: watch::Receiver<Lists>,
    pause: &'a mut Pause,
}

impl<P: Plugin> Stay<'_, P> {
    /// Registers, and returns once the registration no longer counts.
    async fn registered(&mut self, events: &mut Subscription) {
        if let Err(error) = self.dial_ourselves().await {
            self.plugin.on_registration(RegistrationEvent::Refused(error));
            return events.changed(self.pause.next()).await;
        }
        let before = self.listening.borrow().opened;
        let Some(kubelet) = self.register(events).await else { return };
        self.plugin.on_registration(RegistrationEvent::Registered);
        if !self.is_listened_to(before).await {
            self.plugin.on_registration(RegistrationEvent::Ignored);
            return events.changed(self.pause.next()).await;
        }
        self.plugin.on_registration(RegistrationEvent::Listening);
        let since = Instant::now();
        let mut neighbours = Neighbours::new(self.paths);
        while self.own.is_there() && Identity::of(&self.paths.kubelet_socket()) == Some(kubelet) {
            if neighbours.one_has_gone(self.paths) {
                if self.listening.borrow().open > MAX_LISTS {
                    break;
                }
                if let Err(reason) = self.ask().await {
                    self.plugin.on_registration(RegistrationEvent::Refused(reason));
                    return events.changed(self.pause.next()).await;
                }
            }
            let mut listening = self.listening.clone();
            let lost = async move { drop(listening.wait_for(|lists| lists.open == 0).await) };
            tokio::select! {
                () = events.changed(RECHECK) => {}
                () = lost => {
                    self.plugin.on_registration(RegistrationEvent::Lost);
                    self.pause.over(since);
                    return events.changed(self.pause.next()).await;
                }
            }
        }
        self.pause.reset();
    }

    /// Waits for the plugin watcher, and returns once the socket has to be made anew.
    async fn found(&mut self, events: &mut Subscription, status: &watch::Sender<pluginwatcher::Status>) {
        use pluginwatcher::Status::{Asked, Away, Refused, Registered, Unseen};
        let mut status = status.subscribe();
        let mut listening = self.listening.clone();
        let mut listened = false;
        let mut overdue = Instant::now() + SEEN_WITHIN;
        loop {
            tokio::select! {
                () = events.changed(RECHECK) => if !self.own.is_there() { return },
                () = sleep_until(overdue), if !listened => {
                    if *status.borrow() != Unseen {
                        self.plugin.on_registration(RegistrationEvent::Ignored);
                    }
                    return;
                }
                _ = status.changed() => {
                    let now = status.borrow_and_update().clone();
                    match now {
                        Unseen | Away(_) => {}
                        Asked => overdue = Instant::now() + LISTENS_WITHIN,
                        Registered => self.plugin.on_registration(RegistrationEvent::Registered),
                        Refused(reason) => {
                            self.plugin.on_registration(RegistrationEvent::Refused(reason));
                            return sleep(self.pause.next()).await;
                        }
                    }
                }
                _ = listening.changed() => {
                    let now = listening.borrow_and_update().open > 0;
                    match (std::mem::replace(&mut listened, now), now) {
                        (false, true) => {
                            self.pause.reset();
                            self.plugin.on_registration(RegistrationEvent::Listening);
                        }
                        (true, false) => {
                            self.plugin.on_registration(RegistrationEvent::Lost);
                            // A restarted kubelet finds the socket again; one that took another end for ours does not.
                            overdue = Instant::now() + LISTENS_WITHIN;
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    /// Verifies that the socket is served, before the kubelet dials it.
    async fn dial_ourselves(&self) -> Result<(), String> {
        let ask = async {
            let channel = dial(&self.paths.socket()).await?;
            DevicePluginClient::new(channel).get_device_plugin_options(wire::Empty {}).await.map(drop)
        };
        match timeout(SELF_DIAL, ask).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(status)) => Err(format!("our own socket does not answer: {}", status.message())),
            Err(_) => Err(format!("our own socket does not answer within {SELF_DIAL:?}")),
        }
    }

    /// Registers as soon as the kubelet's socket exists. Returns that socket; `None` if our own one has gone meanwhile.
    async fn register(&mut self, events: &mut Subscription) -> Option<Identity> {
        let mut last = None;
        loop {
            if !self.own.is_there() {
                return None;
            }
            let kubelet = Identity::of(&self.paths.kubelet_socket());
            if kubelet != last {
                self.pause.reset();
                last = kubelet;
            }
            if kubelet.is_none() {
                events.changed(RECHECK).await;
                continue;
            }
            match self.ask().await {
                Ok(()) => return kubelet,
                Err(reason) => self.plugin.on_registration(RegistrationEvent::Refused(reason)),
            }
            events.changed(self.pause.next()).await;
        }
    }

    /// Sends one registration; the error is the reason of a refusal.
    async fn ask(&self) -> Result<(), String> {
        match timeout(DEADLINE, self.try_ask()).await {
            Ok(answer) => answer.map_err(|status| status.message().to_owned()),
            Err(_) => Err(format!("no answer within {DEADLINE:?}")),
        }
    }

    async fn try_ask(&self) -> Result<(), Status> {
        let channel = dial(&self.paths.kubelet_socket()).await?;
        let request = wire::RegisterRequest {
            version: VERSION.to_owned(),
            endpoint: self.paths.endpoint.clone(),
            resource_name: self.paths.resource.clone(),
            options: Some(options(self.plugin)),
        };
        RegistrationClient::new(channel).register(request).await.map(drop)
    }

    /// Whether the kubelet listens in time; it may have begun before it answered.
    async fn is_listened_to(&mut self, before: u64) -> bool {
        let begun = self.listening.wait_for(|lists| lists.opened > before);
        timeout(LISTENS_WITHIN, begun).await.is_ok_and(|begun| begun.is_ok())
    }
}

async fn dial(path: &std::path::Path) -> Result<Channel, Status> {
    let text = path.to_str().ok_or_else(|| Status::internal(format!("{} is not UTF-8", path.display())))?;
    let endpoint = Endpoint::from_shared(format!("unix://{text}"));
    let channel = async { endpoint?.connect().await };
    channel.await.map_err(|error| Status::unavailable(chain(&error)))
}

/// An error with its causes in one line; the transport's own text names none.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
