//! What the controllers have in common: from the world to changes to a status.
//!
//! In: the world, a controller. Out: changes made, status written. Never: a rule about what should be there.

/// What came of the changes of one round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// What could not be done, one line each, for people.
    pub errors: Vec<String>,
}
