// This file lets Go functions without a body, which the linker finds elsewhere, compile.
