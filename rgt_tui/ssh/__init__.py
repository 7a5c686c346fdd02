"""SSH as the fleet needs it: connect with a verified host key, put the agent there, keep one channel of frames."""
