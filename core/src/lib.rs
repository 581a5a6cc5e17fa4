//! Numbers for language models on CPUs.
#![cfg_attr(not(feature = "std"), no_std)]
