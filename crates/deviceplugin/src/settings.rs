//! What a command line comes to.
//!
//! In: flags, ours or the sample plugin's. Out: where the configuration is, where everything on this node is. Never: a look at the node.

use std::net::SocketAddr;
use std::path::PathBuf;

use node::deviceplugin::Way;
use runtime::yaml;

use crate::config::{Config, Error};
use crate::discovery::Place;
use crate::last::Last;

/// The settings of a process.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The configuration, or where it is.
    pub source: Source,
    /// Where devices are looked for.
    pub place: Place,
    /// How the kubelet gets to know of us.
    pub way: Way,
    /// The folder of our sockets.
    pub folder: PathBuf,
    /// The folder of Container Device Interface files.
    pub cdi_dir: PathBuf,
    /// Where metrics and health are served, if they are.
    pub http: Option<SocketAddr>,
    /// How the devices are offered for resource claims, if they are.
    pub dra: Option<crate::dra::Settings>,
}

/// Where the configuration is.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// In a file, which may change.
    File(PathBuf),
    /// In the flags.
    Flags(Config),
}

impl Settings {
    /// The configuration now, as far as it is about this node.
    ///
    /// # Errors
    /// When the file cannot be read or is wrong.
    pub fn read(&self) -> Result<Config, Error> {
        let config = match &self.source {
            Source::File(path) => Config::read(path)?,
            Source::Flags(config) => config.clone(),
        };
        Ok(config.of_node(&self.place.node))
    }

    /// The same again and again: none when it is what was read last.
    ///
    /// # Errors
    /// As [`Settings::read`], once for each text that is wrong.
    pub fn read_again(&self, last: &mut Last) -> Result<Option<Config>, Error> {
        let Source::File(path) = &self.source else { return Ok(None) };
        let text = yaml::read_text(path, yaml::CONFIG_LIMIT_BYTES)?;
        if last.is(&text) {
            return Ok(None);
        }
        let config = Config::parse(&path.display().to_string(), &text)?;
        Ok(Some(config.of_node(&self.place.node)))
    }
}
