"""When things happen: the clock, the consumer loop, its slots, and the sites that are due."""
