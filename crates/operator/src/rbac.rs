//! What the operator's service account must be allowed to do. Next to the code that needs it.
//!
//! In: a platform. Out: the rules of a ClusterRole, and of a Role in its namespace. Never: more than is used.
